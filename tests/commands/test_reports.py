"""Every command: its result on stdout, notes and progress on stderr; --json prints an object, --quiet no notes."""

import contextlib
import json
import socket

import pytest

from jaxwhiten.commands import cli
from tests.commands.conftest import MODEL, words_of

# Every command, with the facts that --json has. What they need is in the folder, or made by the commands before.
COMMANDS = {
    f"encode {{texts.txt}} {MODEL} -o {{at}}/x.npy": {"rows": 400, "dimensions": 32},
    f"embed {{texts.txt}} {MODEL} -o {{at}}/parts": {"rows": 400, "bytes": 128},
    f"fit {{texts.txt}} {MODEL} -o {{at}}/w.safetensors --moments {{at}}/m": {"rows": 400, "dimensions": 32},
    "apply {at}/w.safetensors {at}/x.npy -o {at}/y.npy -k 4": {"rows": 400, "dimensions": 4},
    "inspect {at}/w.safetensors": {"kind": "whitening", "n": 400},
    f"train {{apart.tsv}} {MODEL} --objective cosent --steps 2 --batch-size 4 -o {{at}}/t": {"step": 2},
    f"score {{pairs.tsv}} {MODEL}": {"measure": "spearman"},
    f"index {{texts.txt}} {MODEL} --bytes 8 -o {{at}}/idx": {"texts": 400},
    "add {at}/idx {few.txt}": {"added": 2},
    "remove {at}/idx 65 66": {"unknown": 0},
    "search {at}/idx man -k 2": {"query": "man"},
    "serve {whole} --port 0": {},
    f"distill {MODEL} -o {{at}}/static -k 4": {"dimensions": 4},
    f"export {MODEL} -o {{at}}/out": {"format": "sentence-transformers"},
    "verify {at}/idx": {"ok": True},
}
CUT = [
    "encode {texts.txt} -o {new}.npy",
    "embed {texts.txt} -o {new}",
    "fit {texts.txt} -o {new}/",
    "score {pairs.tsv}",
]
CUT += ["index {texts.txt} -o {new}", "distill --corpus {texts.txt} -k 4 -o {new}/"]


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


def test_every_command_is_walked():
    assert [line.split()[0] for line in COMMANDS] == list(cli.COMMANDS)


@pytest.fixture
def connections(monkeypatch):
    """The hosts that a command has asked for, in vain."""
    names = []

    def refused(*words, **options):
        names.append(words)
        raise OSError("offline")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket.socket, "connect_ex", refused)
    return names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.split()[0])
def test_results_are_on_stdout_notes_on_stderr_and_nothing_leaves_this_machine(
    run, home, at, line, connections, monkeypatch
):
    words = words_of(line, home, at=at)
    if words[0] == "serve":
        serving = pytest.importorskip("jaxwhiten.serving")
        monkeypatch.setattr(serving, "listening", lambda *_: contextlib.nullcontext(lambda: None))
    if "-o" in words and words[0] not in ("embed", "train"):  # which go on, or have come to their end
        words.append("--overwrite")
    told = run(*words, "--json", "--quiet")
    assert (told.code, told.err, connections) == (0, "", [])
    found = json.loads(told.out)  # one object
    assert COMMANDS[line].items() <= found.items()
    if words[0] not in ("train", "add", "remove", "serve"):  # which do something else the second time
        plain = run(*words, "--quiet")
        assert (plain.code, plain.err) == (0, "")
        assert plain.out
        assert not plain.out.startswith("{")
        noted = run(*words)
        assert noted.out == plain.out
        assert all(text.startswith("note: ") for text in noted.err.splitlines())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", CUT)
def test_texts_that_are_cut_are_counted_once(run, things, line):
    done = run(*words_of(f"{line} --model {{model}} --pooling mean --max-length 3", things))
    assert (done.code, done.err.count(" were cut at ")) == (0, 1), done.err
    assert "note: 400 of 400 texts were cut at 3 tokens" in done.err


def test_a_search_says_that_its_query_was_cut(run, home):
    assert "note: 1 of 2 texts were cut at 32 tokens" in run("search", home / "idx.db", "a man", "music " * 100).err
    assert "were cut" not in run("search", home / "idx.db", "a man").err
