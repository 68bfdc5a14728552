"""The command line: quick to start, one line an error, and a search service from texts to answers."""

import io
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import CrossEncoder
from jaxwhiten.commands import cli
from tests.conftest import ROOT, slow_but
from tests.sentences import TEXTS


@pytest.fixture(scope="module")
def index(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    texts = folder / "texts.txt"
    texts.write_text("\n".join([*TEXTS, "", "  "]) + "\n", encoding="utf-8")
    words = ["index", texts, "-o", folder / "index", "--model", tiny_model, "--pooling", "mean", "--max-length", "32"]
    assert cli.main([str(word) for word in [*words, "--no-cache"]]) == 0
    return folder / "index"


@pytest.mark.parametrize(
    "line", slow_but(["", "index --help", "train -h", "help fit", "idnex", "fit x --gama 1"], "index --help", "idnex")
)
def test_help_and_mistakes_import_nothing_heavy(line):
    program = f"import sys; from jaxwhiten.commands import cli; cli.main({line.split()}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not {"jax", "numpy", "transformers", "faiss", "tokenizers"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_parameter_of_a_command_has_help_and_every_command_examples(command, run):
    done = run(command, "--help")
    assert done.code == 0
    for argument in cli.APP[command].assemble_argument_collection(parse_docstring=True):
        assert argument.parameter.help or "*" in argument.names or not argument.names, argument
    lines = done.out.partition("\nexamples:\n")[2].splitlines()
    assert lines
    for line in lines:
        words = shlex.split(line.rpartition("| ")[2].partition(" >")[0])
        words = ["x" if word == "-" else word for word in words[1:] if word != "--json"]
        assert cli.APP.parse_args(words, exit_on_error=False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("jaxwhiten tr", "train"),
        ("jaxwhiten search docs.db --rer", "--rerank --rerank-depth"),
        ("jaxwhiten inspect pyproj", "pyproject.toml"),
    ],
)
def test_bash_completes_commands_and_options(run, words, found):
    script = run("--print-completion", "bash").out
    script += f"\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _jaxwhiten; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert sorted(done.stdout.split()) == found.split()


def test_zsh_has_a_completion(run):
    script = run("--print-completion", "zsh").out
    assert "_cyclopts_jaxwhiten() {" in script
    assert script.endswith("\ncompdef _cyclopts_jaxwhiten jaxwhiten\n")


def test_a_cross_encoder_puts_the_results_in_its_order(index, cross_encoder, capsys):
    words = ["search", str(index), TEXTS[1], "--rerank", str(cross_encoder), "--json", "-k", "3"]
    assert cli.main([*words, "--rerank-depth", str(len(TEXTS))]) == 0
    found = json.loads(capsys.readouterr().out)["hits"]
    scores = CrossEncoder.from_pretrained(cross_encoder).predict([(TEXTS[1], text) for text in TEXTS])
    assert [hit["id"] for hit in found] == np.argsort(-scores)[:3].tolist()
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


@pytest.mark.slow
def test_a_reader_that_stops_is_no_error(index):
    command = f"{sys.executable} -m jaxwhiten.commands.cli search {shlex.quote(str(index))} a b c d e f g | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("> a")
