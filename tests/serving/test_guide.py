"""The blocks of docs/guides/serve.md, beside those of the shell, which tests/test_documents.py runs."""

import json
import re
import shlex
import subprocess

import pytest

from jaxwhiten.commands import cli
from tests.conftest import ROOT
from tests.test_documents import blocks

GUIDE = ROOT / "docs" / "guides" / "serve.md"


def here(text, server):
    return text.replace("http://127.0.0.1:8000", server.url)


def test_the_commands_of_the_guide(coded):
    lines = [line for _, block in blocks(GUIDE, "bash") for line in block.splitlines()]
    starts = [shlex.split(line) for line in lines if line.startswith("jaxwhiten")]
    starts += [
        shlex.split(line) for line in re.findall(r"^ExecStart=\S*/(jaxwhiten .*)$", GUIDE.read_text(), re.MULTILINE)
    ]
    for words in starts:
        _, bound, _ = cli.APP.parse_args(words[1:], exit_on_error=False)
        assert bound.arguments["index"]
    (curl,) = [line for line in lines if line.startswith("curl")]
    done = subprocess.run(shlex.split(here(curl, coded)), capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["hits"]) == 3


def test_the_client_of_the_guide(coded):
    pytest.importorskip("openai")
    (code,) = [block for _, block in blocks(GUIDE) if "openai" in block]
    exec(here(code, coded), names := {})
    assert len(names["queries"].data[0].embedding) == 48  # columns of the whitening before the code
    assert len(names["codes"].data[0].embedding) == 16
