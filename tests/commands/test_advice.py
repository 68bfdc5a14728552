"""The advice of messages: every command in one is run as it stands, every option in one is there."""

import ast
import functools
import re
import shlex

import numpy as np
import pytest

from jaxwhiten import Encoder, SpectrumCode
from jaxwhiten.codes.files import vector_writer
from jaxwhiten.commands import cli
from jaxwhiten.search import load_index
from tests.conftest import ROOT
from tests.sentences import generated

PACKAGE = ROOT / "jaxwhiten"
_COMMAND = re.compile(r"(?<!folder of )`jaxwhiten ([^`]+)`|^ *(?:Next: )?jaxwhiten ((?:fit|search) .+)$", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
# What a reader adds to a command that a message names alone, and types for the words in capitals and for `{}`.
MODEL = "--model {model} --pooling mean"
ALONE = {
    "encode": f"encode {{texts}} {MODEL} -o {{out}}.npy",
    "embed": f"embed {{texts}} {MODEL} -o {{parts}}",
    "fit": f"fit {{texts}} {MODEL} -o {{out}}",
    "index": f"index {{texts}} {MODEL} -o {{out}}",
    "score": f"score {{pairs}} {MODEL}",
    "verify": "verify {model}",
    'search {} "a query"': 'search {idx} "a query"',
    "fit TEXTS --model MODEL -o DIR/": "fit {texts} --model {model} --pooling mean -o {out}/",
    "fit TEXTS --model {}{} -o FITTED": "fit {texts} --model {saved} --bytes 8 -o {out}",
}


def messages():
    """The strings of the package that are no docstrings, each with its file; `{}` stands for a value."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bodies = [node.body[0] for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
        skipped = {id(node.value) for node in bodies if isinstance(node, ast.Expr)}
        skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield path, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                yield path, node.value


def _commands():
    return sorted({found[1] or found[2] for _, text in messages() for found in _COMMAND.finditer(text)})


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny_model):
    at, texts = tmp_path_factory.mktemp("advice"), generated(400)
    (at / "texts.txt").write_text("\n".join(texts) + "\n")
    (at / "pairs.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"{texts[i]}\t{texts[i + 1]}\t{i}\n" for i in range(20))
    )
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    encoder.save(at / "saved")
    vectors = encoder.encode(texts)
    encoder.index(texts).save(at / "idx")
    assert load_index(at / "idx").size == 400
    files = {"texts": at / "texts.txt", "pairs": at / "pairs.tsv", "model": tiny_model, "saved": at / "saved"}
    encoder.whiten(texts, k=8).save(at / "whitened")
    with vector_writer(str(at / "codes.npy"), 8, np.uint8, code := SpectrumCode(bytes=8).fit(vectors)) as write:
        write(None, code.encode(vectors))
    (at / "table.csv").write_text("id,text\na,one\nb,two\n")
    encoder.index(["one"], ids=["a"]).save(at / "named")
    made = {name: at / name for name in ("idx", "parts", "whitened", "named", "codes.npy", "table.csv")}
    return files | {name.partition(".")[0]: path for name, path in made.items()}


def test_every_command_in_a_message_is_known_here():
    assert _commands() == sorted(ALONE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("command", ALONE)
def test_a_command_in_a_message_runs(run, places, tmp_path, command):
    done = run(*shlex.split(ALONE[command].format(**places, out=tmp_path / "out")))
    assert done.code == 0, done.err


@functools.cache
def arguments():
    """The flags of all commands, each with its parameter; a message of one command may name another."""
    apps = [cli.APP.meta, *map(cli.APP.__getitem__, cli.COMMANDS)]
    return {
        flag: argument.field_info.name
        for app in apps
        for argument in app.assemble_argument_collection()
        for flag in argument.names
    }


def test_the_options_in_messages_are_there():
    named = {(path.name, text) for path, text in messages() if path.parent.name != "runtime"}
    assert [place for place in sorted(named) if not set(_FLAG.findall(place[1])) <= arguments().keys()] == []


def test_a_parameter_in_advice_is_marked():
    """Else a command cannot show it as its flag. Words that are nouns of English are none."""
    names = set(arguments().values()) | {flag[1:] for flag in arguments() if len(flag) == 2}
    names -= {"columns", "data", "sentences", "texts", "vectors"}
    advice = re.compile(
        rf"\b(?:use|omit|pass|set|lower|specify) ({'|'.join(sorted(names))})\b(?![\w`=/.-])", re.IGNORECASE
    )
    library = {text for path, text in messages() if path.parent.name != "commands"}
    assert {found[0] for text in library for found in advice.finditer(text) if found[0][1].islower()} == {
        "set tuned"
    }  # with its flag
