"""Folders are written as a whole: a fault or a kill at any write leaves the old one, which gives its old vectors.

An audit hook sees every file that Python opens for writing, makes, renames or removes; the writers of compiled
libraries are counted beside it. At each of these points one run fails as on a full disk, and another run copies
what is on the disk, which is what `kill -9` would have left there.
"""

import contextlib
import errno
import itertools
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from jaxwhiten import CrossEncoder, Encoder, Whitening, export
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import Vocabulary, distil
from jaxwhiten.errors import OutputError
from jaxwhiten.models import load_model, resolve_folder, save_model
from tests.commands.conftest import contents
from tests.conftest import slow_but
from tests.sentences import generated
from tests.tiny import write_cross_encoder, write_model

TEXTS = generated(24)
NOTHING = {"recipe": {}, "scores": {}, "before": {}}


class Points:
    """Counts the points at which something below a folder is written; `at` is called at each with its number."""

    def __init__(self):
        self.root, self.at, self.count = None, None, 0
        sys.addaudithook(self._hook)

    def _hook(self, event, args):
        if self.root is None:
            return
        writes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")
        if writes or (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            self.point(args[0])

    def point(self, path):
        if self.root is None or not isinstance(path, str | os.PathLike) or self.root not in os.fspath(path):
            return
        self.count += 1
        root, self.root = self.root, None  # what `at` does is not counted
        try:
            self.at(self.count)
        finally:
            self.root = root

    @contextlib.contextmanager
    def below(self, root, at):
        self.root, self.at, self.count = os.fspath(root), at, 0
        try:
            yield
        finally:
            self.root = None


@pytest.fixture(scope="module")
def points():
    return Points()


@pytest.fixture
def native(points, monkeypatch):
    """Has writes of compiled libraries be points, which fail in the way of each library."""

    def patch(module, name, place, error):
        original = getattr(module, name)

        def write(*args, **options):
            path = args[place]
            try:
                points.point(path)
            except OSError as full:
                Path(path).write_bytes(b"half")
                raise error(str(full)) from None
            result = original(*args, **options)
            points.point(path)
            return result

        monkeypatch.setattr(module, name, write)

    patch(safetensors.numpy, "save_file", 1, safetensors.SafetensorError)
    for library, names in (("faiss", ("write_index", "write_VectorTransform")), ("openvino", ("save_model",))):
        with contextlib.suppress(ImportError):
            module = __import__(library)
            for name in names:
                patch(module, name, 1, RuntimeError)


def encode(folder):
    return Encoder.from_pretrained(folder, max_length=32).encode(TEXTS)


def bare(folder):
    return np.asarray(load_model(folder)[0].embeddings.word.embedding[...])


def whitening(k):
    return Whitening(n_components=k).fit(np.random.default_rng(k).normal(size=(200, 32)))


def onnx(folder):
    session = pytest.importorskip("onnxruntime").InferenceSession(folder / "model.onnx")
    ids = np.arange(5, 15)[None]
    return session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]


def faiss(folder):
    library = pytest.importorskip("faiss")
    assert library.read_index(str(folder / "index.faiss")).d == 32
    return library.read_VectorTransform(str(folder / "linear.vt")).apply(np.eye(32, dtype=np.float32))


def pairs(folder):
    return CrossEncoder.from_pretrained(folder).predict([(text, "a man") for text in TEXTS])


SLOW = ("Encoder.save", "with a code", "static", "sentence-transformers", "onnx", "train.sbert")
KINDS = ("save_model", "CrossEncoder.save", "faiss", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for labels in (1, 2):
        write_cross_encoder(root / f"pair{labels}", labels)
    return [write_model(root / str(seed), seed=seed) for seed in (0, 3)]


@pytest.fixture
def writers(models, kind):
    """What writes the old folder, what writes the new one, and what reads vectors from one."""
    model, other = models
    raw = Encoder.from_pretrained(model, pooling="mean", max_length=32)
    small, large = (raw.with_whitening(whitening(k)) for k in (4, 8))
    whole = whitening(32)
    coded = raw.with_whitening(whole).with_code(SpectrumCode(bytes=4).fit(whole))
    if kind == "static":
        return *(distil(Vocabulary.read(raw), k).save for k in (2, 3)), encode
    strange = load_model(other)[0]
    return {
        "Encoder.save": (small.save, large.save, encode),
        "with a code": (coded.save, large.save, encode),
        "save_model": (*(partial(save_model, load_model(m)[0]) for m in models), bare),
        "CrossEncoder.save": (*(CrossEncoder.from_pretrained(model.parent / f"pair{n}").save for n in (1, 2)), pairs),
        "sentence-transformers": (
            *(flipped(export.export_sentence_transformer, e) for e in (small, large)),
            encode,
        ),
        "onnx": (*(flipped(export.save_onnx, e) for e in (small, large)), onnx),
        "faiss": (*(flipped(export.save_faiss, whitening(k)) for k in (4, 8)), faiss),
        "train.sbert": (
            lambda folder: export.save_trained(folder, raw, base_model="old", **NOTHING),
            lambda folder: export.save_trained(
                folder, Encoder.from_module(strange, other), base_model="new", **NOTHING
            ),
            encode,
        ),
    }[kind]


def flipped(function, what):
    return lambda folder: function(folder, what)


def full(number):
    def at(count):
        if count == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return at


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_every_write(points, writers, kind, tmp_path):
    old_writer, new_writer, read = writers
    root = tmp_path / "root"  # beside the cache
    root.mkdir()
    folder = root / "out"
    old_writer(folder)
    old, vectors, number, faults = contents(folder), read(folder), 0, 0
    points.count = 0
    while points.count >= number:
        number += 1
        refused = None
        with points.below(root, full(number)):
            try:
                new_writer(folder)
            except OutputError as error:
                refused = str(error)
        whole = contents(folder)
        if refused is not None:
            assert refused.startswith(f"{folder}: could not be written (")
            assert whole == old, number
            faults += 1
        elif number <= points.count:  # while the old one was removed, or a temporary file
            old_writer(folder)
            old = contents(folder)
    assert not np.array_equal(read(folder), vectors)
    assert os.listdir(root) == ["out"]
    assert faults > 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    ("kind", "exchange"),
    slow_but(
        itertools.product(["Encoder.save", "CrossEncoder.save"], [True, False]),
        ("Encoder.save", True),
        ("CrossEncoder.save", False),
    ),
)
def test_a_kill_at_every_write(points, writers, kind, exchange, tmp_path, monkeypatch):
    """Where two renames replace a folder, whoever reads or writes it next puts it back."""
    if not exchange:
        monkeypatch.setattr("jaxwhiten.io.files.sys.platform", "other")
    old_writer, new_writer, read = writers
    work, seen = tmp_path / "work", tmp_path / "seen"
    old_writer(work / "out")
    old = contents(work / "out")
    with points.below(work, lambda count: shutil.copytree(work, seen / str(count))):
        new_writer(work / "out")
    new, found = contents(work / "out"), []
    for left in sorted(seen.iterdir(), key=lambda left: int(left.name)):
        folder = resolve_folder(left / "out")
        found.append([old, new].index(contents(folder)))
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == 1  # the old one is being removed
    assert read(seen / "9" / "out").shape == read(work / "out")[:, :4].shape or kind == "CrossEncoder.save"
    for number in (9, len(found)):
        old_writer(seen / str(number) / "out")  # and removes what the killed one left
        assert os.listdir(seen / str(number)) == ["out"]
