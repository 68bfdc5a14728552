"""The advice of messages: every command in one is run as it stands, every option in one is there."""

import ast
import functools
import re

import pytest

from jaxwhiten.commands import cli
from tests.commands.conftest import MODEL, words_of
from tests.conftest import ROOT

PACKAGE = ROOT / "jaxwhiten"
_COMMAND = re.compile(r"(?<!folder of )`jaxwhiten ([^`]+)`|^ *(?:Next: )?jaxwhiten ((?:fit|search) .+)$", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
# What a reader adds to a command that a message names alone, and types for the words in capitals and for `{}`.
ALONE = {
    "encode": f"encode {{texts.txt}} {MODEL} -o {{new}}.npy",
    "embed": f"embed {{texts.txt}} {MODEL} -o {{new}}",
    "fit": f"fit {{texts.txt}} {MODEL} -o {{new}}",
    "index": f"index {{texts.txt}} {MODEL} -o {{new}}",
    "score": f"score {{pairs.tsv}} {MODEL}",
    "verify": "verify {whole}",
    'search {} "a query"': "search {idx.db} query",
    "fit TEXTS --model MODEL -o DIR/": "fit {texts.txt} --model {model} --pooling mean -o {new}/",
    "fit TEXTS --model {}{} -o FITTED": "fit {texts.txt} --model {whole} --bytes 8 -o {new}",
}


@functools.cache
def messages():
    """The strings of the package that are no docstrings, each with its file; `{}` stands for a value."""
    return list(_messages())


def _messages():
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


def test_every_command_in_a_message_is_known_here():
    assert _commands() == sorted(ALONE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
@pytest.mark.parametrize("command", ALONE)
def test_a_command_in_a_message_runs(run, things, command):
    done = run(*words_of(ALONE[command], things))
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
