"""What the tests of the commands share: a way to run one, sentences and a cache of their own."""

from collections import namedtuple

import pytest

from jaxwhiten import terminal
from jaxwhiten.commands import cli
from jaxwhiten.text.tokenization import COUNTS
from tests.conftest import own_cache
from tests.sentences import generated

Done = namedtuple("Done", "code out err")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    monkeypatch.setattr(terminal, "SECONDS", 1e6)  # a slow machine adds no lines


@pytest.fixture
def run(capsys):
    """Runs a command in this process."""

    def call(*words):
        capsys.readouterr()
        COUNTS.clear()  # of texts that other tests encoded in this process
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A text file of 600 sentences."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(generated(600)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def whitening_file(corpus, tiny_model, tmp_path_factory):
    """A whitening of 16 dimensions that `jaxwhiten fit` made of the corpus, with the moments beside it."""
    folder = tmp_path_factory.mktemp("fitted")
    words = ["fit", corpus, "--model", tiny_model, "--pooling", "mean", "--max-length", 32, "-k", 16]
    files = ["--output", folder / "whitening.safetensors", "--moments", folder / "moments.safetensors"]
    assert cli.main([str(word) for word in [*words, *files]]) == 0
    return folder / "whitening.safetensors"
