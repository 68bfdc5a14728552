"""Every command: its result on stdout, notes and progress on stderr; --json prints an object, --quiet no notes."""

import contextlib
import json
import socket

import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from tests.sentences import generated

SCORED = ("sentence1", "sentence2", "score")
MODEL = "--model {model} --pooling mean --max-length 16"
# Every command, with the facts that --json has. What they need is in the folder, or made by the commands before.
COMMANDS = {
    f"encode {{texts}} {MODEL} -o {{at}}/x.npy": {"rows": 65, "dimensions": 32},
    f"embed {{texts}} {MODEL} -o {{at}}/parts": {"rows": 64, "bytes": 128},
    f"fit {{texts}} {MODEL} -o {{at}}/w.safetensors --moments {{at}}/m.safetensors": {"rows": 64, "dimensions": 32},
    "apply {at}/w.safetensors {at}/x.npy -o {at}/y.npy -k 4": {"rows": 65, "dimensions": 4},
    "inspect {at}/w.safetensors": {"kind": "whitening", "n": 64},
    "train {pairs} --model {shallow} --max-length 16 --steps 2 --batch-size 4 -o {at}/t": {"step": 2},
    f"score {{scored}} {MODEL}": {"measure": "spearman"},
    f"index {{texts}} {MODEL} --bytes 8 -o {{at}}/idx": {"texts": 64},
    "add {at}/idx {texts}": {"added": 64},
    "remove {at}/idx 65 66": {"unknown": 0},
    "search {at}/idx man -k 2": {"query": "man"},
    "serve {whole} --port 0": {},
    f"distill {MODEL} -o {{at}}/static -k 4": {"dimensions": 4},
    f"export {MODEL} -o {{at}}/out": {"format": "sentence-transformers"},
    "verify {at}/idx": {"ok": True},
}


@pytest.fixture(scope="module")
def names(tmp_path_factory, tiny_model, shallow_model):
    at, texts = tmp_path_factory.mktemp("reports"), generated(64)
    (at / "texts.txt").write_text("\n".join([*texts, " "]) + "\n")
    whole = Encoder.from_pretrained(tiny_model, pooling="mean").save(at / "whole")
    rows = list(zip(texts[:32], texts[32:], strict=True))
    (at / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in [("anchor", "positive"), *rows]))
    (at / "scored.tsv").write_text(
        "".join(f"{a}\t{b}\t{i}\n" for a, b, i in [SCORED, *((*row, i) for i, row in enumerate(rows))])
    )
    files = {name: at / f"{name}.{ending}" for name, ending in [("texts", "txt"), ("pairs", "tsv"), ("scored", "tsv")]}
    return {"at": at, "model": tiny_model, "whole": whole, "shallow": shallow_model, **files}


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
    run, names, line, connections, monkeypatch
):
    words = [word.format(**names) for word in line.split()]
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
