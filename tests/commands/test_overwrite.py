"""An output that exists is replaced only with --overwrite: every output of every command, before any work."""

from pathlib import Path
from typing import get_args

import pytest

from jaxwhiten.commands import cli
from jaxwhiten.commands.arguments import PlaceName
from tests.commands.conftest import MODEL, contents, words_of
from tests.conftest import slow_but

# The inputs of every command that writes; {n} is 4, and 5 in another run, whose output differs.
INPUTS = {
    "encode": f"{{texts-{{n}}.txt}} {MODEL}",
    "embed": f"{{texts-{{n}}.txt}} {MODEL}",
    "fit": f"{{texts-{{n}}.txt}} {MODEL}",
    "apply": "{w.safetensors} {x.npy} -k {n}",
    "train": "{apart.tsv} --objective cosent --model {model} --max-length 16 --steps {n} --batch-size 4 --held-out 0",
    "index": f"{{texts-{{n}}.txt}} {MODEL}",
    "distill": f"{MODEL} --no-fit -k {{n}}",
    "export": f"--whitening {{w-{{n}}.safetensors}} {MODEL}",
}
FILES = {"encode": "out.npy", "apply": "out.npy", "index": "out.db"}
FAST = ("encode", "apply", "fit", "index", "export")
UPDATED = {"--into"}  # brought level with an index
# Outputs of other kinds, by the same arguments.
OTHERS = [
    ("encode", "-o {out.parquet}"),
    ("fit", "-o {out.safetensors}"),
    ("fit", "--bytes 4 --tuned -o {out.safetensors}"),
    ("export", "--format faiss -o {out}"),
    ("export", "--format sqlite-vec --bytes 8 -o {out}"),
]


def outputs():
    """The command and the words of every output, from the functions themselves."""
    for command in cli.COMMANDS:
        for argument in cli.APP[command].assemble_argument_collection():
            if PlaceName in (argument.hint, *get_args(argument.hint)) and argument.name not in UPDATED:
                rest = "-o {other-{n}} " if (command, argument.name) == ("embed", "--moments") else ""
                yield command, f"{rest}{argument.name} {{{FILES.get(command, 'out')}}}"
    yield from OTHERS


def test_the_inputs_of_every_command_that_writes_are_known():
    assert {command for command, _ in outputs()} == set(INPUTS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("command", "output"), slow_but(outputs(), *(row for row in outputs() if row[0] in FAST and row not in OTHERS))
)
def test_an_output_that_exists_is_replaced_only_if_that_is_asked_for(run, home, tmp_path, command, output, monkeypatch):
    def line(n, *more):
        words = words_of(output, tmp_path, n=n)
        return [command, *words_of(INPUTS[command], home, n=n), *words, *more]

    for package in {"train": ["orbax", "grain"], "export": ["onnx", "faiss"], "embed": ["pyarrow"]}.get(command, []):
        pytest.importorskip(package)
    done = run(*line(4))
    assert done.code == 0, done.err
    before = contents(tmp_path)
    place = line(4)[-1]
    with monkeypatch.context() as patch:
        patch.setattr("jaxwhiten.views.stream.vectors", None)  # no text is encoded
        refused = run(*line(5))
    assert refused.code == 2, refused.out
    assert place in refused.err
    assert "--overwrite" in refused.err
    assert contents(tmp_path) == before
    done = run(*line(5, "--overwrite"))
    assert done.code == 0, done.err
    assert Path(place).exists()
    assert contents(tmp_path) != before


def test_the_code_beside_codes_is_an_output(run, home, tmp_path):
    (tmp_path / "out.npy.code.safetensors").write_text("of other codes")
    done = run("encode", *words_of(INPUTS["encode"], home, n=4), "-o", tmp_path / "out.npy")
    assert (done.code, "out.npy.code.safetensors: exists" in done.err) == (2, True), done.err
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("command", ["encode", "index"])
def test_an_empty_output_is_none(run, home, tmp_path, command):
    out = tmp_path / ("docs.db" if command == "index" else "encode.npy")
    out.touch()
    assert run(command, *words_of(INPUTS[command], home, n=4), "-o", out).code == 0
