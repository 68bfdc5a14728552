"""The arguments that commands share: every pooling named, mistyped options answered, plain models taken as they are."""

import re

import pytest

from jaxwhiten import POOLINGS as REGISTRY
from jaxwhiten.commands.arguments import in_flags
from jaxwhiten.commands.cli import APP
from tests.conftest import slow_but
from tests.sentences import generated


def test_help_names_every_pooling(run):
    of_eval = {"ditto", "promptbert", "idf"}  # registered if other tests have imported them
    assert set(REGISTRY) - of_eval <= set(re.findall(r"\w+", run("fit", "--help").out.partition("--pooling")[2]))


@pytest.mark.filterwarnings("always::jaxwhiten.whitening.whitening.WhiteningWarning")
def test_few_rows_are_shrunk_and_a_choice_is_said_with_its_reason(run, tiny_model, tmp_path):
    (tmp_path / "few.txt").write_text("\n".join(generated(150)))
    words = ["fit", tmp_path / "few.txt", "--model", tiny_model, "--pooling", "mean", "--overwrite"]
    words += ["-o", tmp_path / "w.safetensors"]
    (chosen,) = run(*words).err.splitlines()
    assert chosen.startswith("note: γ=1: the encoder is not fine-tuned for similarity (judged by its vectors)")
    assert run(*words, "--gamma", 1).err == ""


@pytest.mark.usefixtures("no_advice")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", slow_but(["a plain folder", "jaxwhiten-tiny"], "a plain folder"))
@pytest.mark.parametrize(
    "words",
    ["fit {texts} -k 4 -o {out}", "encode {texts} -o {out}.npy", "index {texts} -o {out}", "export -o {out}"],
    ids=lambda words: words.split()[0],
)
def test_a_model_that_says_no_pooling_is_taken_with_one_line(run, tiny_model, corpus, tmp_path, name, words):
    model = tiny_model if name == "a plain folder" else name
    names = {"texts": corpus, "out": tmp_path / "out"}
    done = run(*(word.format(**names) for word in words.split()), "--model", model)
    assert done.code == 0, done.err
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert warning.startswith(f"warning: {model} specifies no pooling: using the mean.")
    assert warning.endswith("with --pooling first_last_avg; --pooling mean silences this.")
    assert list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("gamma=0.5.", "--gamma 0.5."),
        ("(pooling='mean, max')", "(--pooling mean, max)"),
        ("a larger `gamma`, or prompt=''", "a larger --gamma, or prompt=''"),
        ("gamma is fine, x.gamma=1 and my_gamma=1 too", "gamma is fine, x.gamma=1 and my_gamma=1 too"),
        ("file='x y'", "file x y"),
    ],
)
def test_parameters_become_flags(message, expected):
    flags = {"gamma": "--gamma", "pooling": "--pooling", "file": "file"}
    assert in_flags(message, flags) == expected
    assert in_flags(message, {}) == message
    assert in_flags("gamma=1", {"gamma": "--config.gamma"}, "=") == "--config.gamma=1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("search idx -- -k --json", ["idx", "-k", "--json"]),
        ("search idx -k 1 a -- --", ["idx", "a", "--"]),
        ("search -- -idx -k", ["-idx", "-k"]),
        ("embed -o x -- -a.txt --b", ["-a.txt", "--b"]),
        ("remove x -- -1 --model", ["x", "-1", "--model"]),
    ],
)
def test_words_after_two_dashes_are_no_options(words, expected):
    _, launched, _ = APP.meta.parse_args(words.split(), print_error=False, exit_on_error=False)
    _, bound, _ = APP.parse_args(launched.args, print_error=False, exit_on_error=False)
    assert list(bound.args) == expected
