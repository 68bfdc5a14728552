"""The command line: quick to start, one line an error, and a search service from texts to answers."""

import gzip
import io
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import CrossEncoder, Encoder, Whitening
from jaxwhiten.commands import cli
from jaxwhiten.search import load_index
from tests.conftest import ROOT
from tests.sentences import TEXTS, generated


@pytest.fixture(scope="module")
def index(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    texts = folder / "texts.txt"
    texts.write_text("\n".join([*TEXTS, "", "  "]) + "\n", encoding="utf-8")
    words = ["index", texts, "-o", folder / "index", "--model", tiny_model, "--pooling", "mean", "--max-length", "32"]
    assert cli.main([str(word) for word in [*words, "--no-cache"]]) == 0
    return folder / "index"


def test_help_comes_at_once_for_it_imports_the_standard_library_only():
    program = (
        "import sys; before = set(sys.modules); from jaxwhiten.commands import cli; cli.main([]); "
        "packages = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(packages - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "search" in done.stdout
    assert done.stdout.splitlines()[-1] == "['jaxwhiten']"


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_its_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.lower().count(command) >= 1


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("jaxwhiten tr", "train"),
        ("jaxwhiten search docs.db --rer", "--rerank --rerank-depth"),
        ("jaxwhiten fit texts.txt --no", "--no-cache"),
        ("jaxwhiten fit tex", ""),  # a file's name
    ],
)
def test_bash_completes_commands_and_options(capsys, words, found):
    assert cli.main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    script += f"\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _jaxwhiten; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


def test_zsh_reads_the_completion_of_bash(run, capsys):
    assert run("--print-completion", "zsh").out.endswith(run("--print-completion", "bash").out)
    assert "invalid choice" in run("--print-completion", "fish").err


def test_a_cross_encoder_puts_the_results_in_its_order(index, cross_encoder, capsys):
    words = ["search", str(index), TEXTS[1], "--rerank", str(cross_encoder), "--json", "-k", "3"]
    assert cli.main([*words, "--rerank-depth", str(len(TEXTS))]) == 0
    found = json.loads(capsys.readouterr().out)["hits"]
    scores = CrossEncoder.from_pretrained(cross_encoder).predict([(TEXTS[1], text) for text in TEXTS])
    assert [hit["id"] for hit in found] == np.argsort(-scores)[:3].tolist()
    np.testing.assert_allclose([hit["score"] for hit in found], np.sort(scores)[:-4:-1], atol=1e-6)
    assert cli.main([*words, "--rerank-depth", "1"]) == 0  # as many as are shown, at the least
    assert len(json.loads(capsys.readouterr().out)["hits"]) == 3


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_queries_from_stdin_are_answered_one_after_another(index, capsys, monkeypatch, dash):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TEXTS[2]}\n\n{TEXTS[4]}\n".encode())))
    assert cli.main(["search", str(index), *dash, "-k", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"> {TEXTS[2]}"
    assert lines[1].endswith(TEXTS[2])
    assert lines[2] == f"> {TEXTS[4]}"


def test_indexing_says_what_it_did(tiny_model, tmp_path, capsys):
    texts = tmp_path / "texts.txt.gz"
    lines = generated(500)
    texts.write_bytes(gzip.compress("\n".join(lines).encode()))
    words = ["index", texts, "-o", tmp_path / "index", "--model", tiny_model, "--pooling", "cls", "--whiten", "-k", "8"]
    words += ["--codes", "int8", "--backend", "faiss-ivf", "--option", "nlist=1024", "--option", "nprobe=3"]
    assert cli.main([str(w) for w in words]) == 0
    out, err = capsys.readouterr()
    assert "500 texts, int8 codes of 8 bytes, faiss-ivf" in out
    assert "nlist lowered" in err
    index = load_index(tmp_path / "index")
    assert (index.dimension, index.options["nprobe"], index.encoding["pooling"]) == (8, 3, "cls")
    assert cli.main(["search", str(tmp_path / "index"), lines[77], "-k", "1"]) == 0
    assert capsys.readouterr().out.endswith(f"{lines[77]}\n")


def test_a_saved_whitening_is_put_inside(tiny_model, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(generated(400)))
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    whitening = Whitening().fit(encoder.encode(texts.read_text().splitlines()))
    whitening.save(tmp_path / "whitening.safetensors")
    words = ["index", texts, "-o", tmp_path / "index", "--model", tiny_model, "--pooling", "mean"]
    assert cli.main([str(w) for w in [*words, "--whitening", tmp_path / "whitening.safetensors", "-k", "5"]]) == 0
    assert load_index(tmp_path / "index").dimension == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["index", "{absent}", "-o", "{out}"], "no such file"),
        (["index", "{empty}", "-o", "{out}"], "no texts"),
        (["index", "{texts}", "-o", "{out}", "--backend", "fais-flat"], "Did you mean 'faiss-flat'"),
        (["index", "{texts}", "-o", "{out}", "--codes", "spectrm"], "Did you mean 'spectrum'"),
        (["index", "{texts}", "-o", "{out}", "--rescore", "int9"], "Did you mean 'int8'"),
        (["index", "{texts}", "-o", "{out}", "--add"], "expected an index"),
        (["index", "{texts}", "-o", "{out}", "--whiten", "--whitening", "x"], "not allowed with"),
        (["index", "{texts}", "-o", "{out}", "--option", "nprobe"], "NAME=NUMBER"),
        (["index", "{texts}", "-o", "{out}", "--option", "nprobe=many"], "NAME=NUMBER"),
        (["index", "{texts}", "-o", "{out}", "--model", "{absent}"], "{absent}"),
        (["search", "{absent}", "query"], "expected an index"),
    ],
)
def test_errors_are_one_line(words, message, tmp_path, capsys):
    places = {name: str(tmp_path / name) for name in ("absent", "empty", "texts", "out")}
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "texts").write_text("a\nb\n")
    assert cli.main([word.format(**places) for word in words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message.format(**places) in err
    assert not (tmp_path / "out").exists()


def test_a_reader_that_stops_is_no_error(index):
    command = f"{sys.executable} -m jaxwhiten.commands.cli search {shlex.quote(str(index))} a b c d e f g | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("> a")
