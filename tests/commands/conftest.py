"""What the tests of the commands share: a way to run one, sentences, a folder of inputs and a cache of their own."""

import hashlib
import itertools
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, SpectrumCode, terminal
from jaxwhiten.codes.files import vector_writer
from jaxwhiten.commands import cli
from jaxwhiten.head import Normalize
from jaxwhiten.text.tokenization import COUNTS
from tests.conftest import own_cache
from tests.sentences import generated
from tests.tiny import write_model

Done = namedtuple("Done", "code out err")
TEXTS = generated(400)
MODEL = "--model {model} --pooling mean --max-length 32"


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
        return Done(cli.main([str(word) for word in words]), *capsys.readouterr())

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


@pytest.fixture(scope="session")
def home(tmp_path_factory, tiny_model):
    """A folder with an input of every kind, which `things` copies for a test."""
    folder = tmp_path_factory.mktemp("home")
    shutil.copytree(tiny_model, folder / "model")
    write_model(folder / "other", seed=5)
    rows = [f"{a}\t{b}\t{score}\n" for score, (a, b) in enumerate(itertools.pairwise(TEXTS))]
    keyed = [f'doc-{number},"{text}"\n' for number, text in enumerate(TEXTS[:7])]
    files = {
        "texts.txt": "\n".join(TEXTS) + "\n",
        "texts-4.txt": "\n".join(TEXTS[:120]),
        "texts-5.txt": "\n".join(TEXTS[60:200]),
        "few.txt": "one\ntwo\n",
        "same.txt": "one sentence\n" * 400,
        "pairs.tsv": "".join(["sentence1\tsentence2\tscore\n", *rows]),
        "apart.tsv": "".join(["sentence1\tsentence2\tscore\n", *rows[::2]]),
        "docs.csv": "".join(["key,text\n", *keyed]),
        "twice.csv": "key,text\na,one\na,two\n",
        "header.csv": "id,title,body\n1,a,b\n",
        "columns.csv": "one,two,gold,more\na,b,1,2\n",
        "row.csv": "a,b,1e-1\nc,d,1\n",
        "foreign/thesis.tex": "mine",
        **{f"foreign.{kind}": "not what its name says" for kind in ("safetensors", "png", "jsonl", "parquet")},
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin.txt").write_bytes("one\ncaf\xe9\n".encode("latin-1"))
    for name, array in {"foreign": np.eye(3), "flat": np.ones(3)}.items():
        np.save(folder / f"{name}.npy", array)
    for line in (
        f"fit {{texts.txt}} {MODEL} -o {{small}} --moments {{m.safetensors}} -k 8",
        f"fit {{texts.txt}} {MODEL} -o {{w.safetensors}}",
        *(f"fit {{texts-{n}.txt}} {MODEL} -o {{w-{n}.safetensors}}" for n in (4, 5)),
        f"encode {{texts.txt}} {MODEL} -o {{x.npy}}",
        f"index {{texts.txt}} {MODEL} -o {{idx.db}}",
        f"index {{docs.csv}} --id key {MODEL} -o {{docs.db}}",
        f"embed {{texts.txt}} {MODEL} -o {{parts}}",
    ):
        assert cli.main(words_of(line, folder)) == 0
    code = SpectrumCode(bytes=4).fit(np.load(folder / "x.npy"))
    code.save(folder / "c")
    with vector_writer(f"{folder}/codes.npy", 4, np.uint8, code) as write:
        write(None, code.encode(np.load(folder / "x.npy")))
    encoder = Encoder.from_pretrained(folder / "model", pooling="mean")
    encoder.with_view(encoder.view.then(Normalize())).save(folder / "auto")
    encoder.save(folder / "whole")
    return folder


@pytest.fixture
def things(home, tmp_path):
    return Path(shutil.copytree(home, tmp_path / "home", symlinks=True))


def words_of(line, folder, **values):
    """The words of a command line, where `{name}` is a file of the folder, or one of the values."""
    for name, value in values.items():
        line = line.replace(f"{{{name}}}", str(value))
    return line.replace("{", f"{folder}/").replace("}", "").split()


def contents(folder, skip=("cache",)):
    """The files in a folder, each with the digest of its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.relative_to(folder).parts[0] not in skip
    }
