"""Every function that takes texts takes them in any container, by position, and refuses what is no text."""

import functools
import importlib.util
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from jaxwhiten import CrossEncoder, Encoder, build_index, evaluate
from jaxwhiten.datasets import Examples
from jaxwhiten.encoding import EmbeddingStore, distil_static, distillation
from jaxwhiten.encoding import encoder as face
from jaxwhiten.errors import InputError
from jaxwhiten.text import as_texts
from jaxwhiten.views import view
from tests.tiny import SENTENCES

TEXTS = [f"{text} {number}" for number, text in enumerate(SENTENCES * 2)]
N, LAST = len(TEXTS), TEXTS[::-1]
SCORES = np.arange(N) % 6
VECTORS = np.random.default_rng(0).standard_normal((N, 32), dtype=np.float32)


@pytest.fixture(autouse=True)
def _cache(monkeypatch, fresh_cache):
    monkeypatch.setattr(distillation, "ENOUGH", 3)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def cross(cross_encoder):
    return CrossEncoder.from_pretrained(cross_encoder)


def indexed(kit, texts=TEXTS):
    space, ids = kit.encoder.view.space, [f"id {number}" for number in range(N)]
    return build_index(VECTORS, "jax", documents=texts, ids=ids, space=space)


def texts_of(index):
    return [document.text for document in index]


# Each takes texts and returns something that depends on every text and its position.
DOORS = {
    "encode": lambda kit, texts: kit.encoder.encode(texts),
    "encode_stream": lambda kit, texts: np.concatenate(list(kit.encoder.encode_stream(texts, block_size=16))),
    "EmbeddingStore": lambda kit, texts: EmbeddingStore(kit.folder / "store").encode(kit.encoder, texts),
    "build_index": lambda kit, texts: texts_of(indexed(kit, texts)),
    "evaluate": lambda kit, texts: evaluate(kit.encoder, (texts, LAST, SCORES), resamples=10).spearman,
    "CrossEncoder.rank": lambda kit, texts: kit.cross.rank("A man", texts),
    "Examples": lambda kit, texts: Examples({"a": LAST, "b": texts}).columns["b"],
}
# These read the container themselves, row by row.
ROWS = {
    "evaluate, rows": lambda kit, texts: (
        evaluate(kit.encoder, zip(texts, LAST, SCORES, strict=True), resamples=10).spearman
    ),
    "CrossEncoder.predict": lambda kit, texts: kit.cross.predict(zip(texts, LAST, strict=True)),
}


@pytest.fixture
def kit(encoder, cross, tmp_path):
    return SimpleNamespace(encoder=encoder, cross=cross, folder=tmp_path)


def library(name):
    """A package that holds texts, or None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def containers():
    """Functions from a list of texts to other containers, by name."""
    yield "tuple", tuple
    yield "iterator", iter
    yield "values", lambda texts: dict(enumerate(texts)).values()
    yield "array", np.array
    yield "array of objects", lambda texts: np.array(texts, object)
    yield "array of StringDType", lambda texts: np.array(texts, np.dtypes.StringDType())
    if pandas := library("pandas"):
        yield "Series, by position", lambda texts: pandas.Series(texts, range(len(texts))[::-1])
        yield "Categorical", lambda texts: pandas.Series(texts, range(len(texts))[::-1], "category")
    if arrow := library("pyarrow"):
        yield "Arrow array", arrow.array
        yield "Arrow chunks", lambda texts: arrow.chunked_array([texts[:7], texts[7:]])
        yield "Arrow dictionary", lambda texts: arrow.array(texts).dictionary_encode()
    if datasets := library("datasets"):
        yield "column of datasets", lambda texts: datasets.Dataset.from_dict({"text": texts})["text"]
    if polars := library("polars"):
        yield "Series of polars", polars.Series


def bad_items():
    """Items that are no texts, and what is said of them."""
    yield None, "got NoneType None: remove missing"
    yield float("nan"), "got float nan: remove missing"
    yield np.int64(7), "got int64 .*: convert it"
    yield b"bytes", "got bytes .*: decode it"
    yield ["a", "b"], "got list .*: pass a flat list"
    if pandas := library("pandas"):
        yield pandas.NA, "got NAType <NA>: remove missing"
    if arrow := library("pyarrow"):
        yield arrow.scalar(None, "string"), "got NoneType None: remove missing"


def bad_containers():
    """What holds no texts in an order, and what is said of it."""
    yield "a" * N, "got str 'aaa.*: put it in a list"
    yield b"a" * N, "got bytes b'aaa.*: decode it"
    yield set(TEXTS), "got set .*: pass a flat list"
    yield np.array([TEXTS, TEXTS]), "got an array of 2 dimensions: pass one of 1"
    yield 7, "got int 7: convert it"
    if pandas := library("pandas"):
        yield pandas.DataFrame({"text": TEXTS}), r"got a DataFrame: pass its columns, such as table\['text'\]"
    if arrow := library("pyarrow"):
        yield arrow.table({"text": TEXTS}), "got a Table: pass its columns"
    if datasets := library("datasets"):
        yield datasets.Dataset.from_dict({"text": TEXTS}), "got a Dataset: pass its columns"


def same(found, expected):
    """Whether two results are equal, whatever they are made of."""
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in found)
    if isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and np.array_equal(found, expected)


def test_any_container_of_texts_is_read_by_position():
    for name, make in containers():
        assert as_texts(make(TEXTS)) == TEXTS, name


def test_an_item_that_is_no_text_is_named_by_position_and_type():
    for bad, message in bad_items():
        with pytest.raises(InputError, match=rf"^Document 3: expected a str, {message}"):
            as_texts([*TEXTS[:3], bad, *TEXTS[4:]], "document")


def test_what_holds_no_texts_in_order_is_refused():
    for bad, message in bad_containers():
        with pytest.raises(InputError, match=rf"^Expected a list, one item per sentence, {message}"):
            as_texts(bad)


@pytest.mark.parametrize("door", [*DOORS, *ROWS])
def test_every_door_takes_texts_so(kit, door):
    """An iterator, of which one text has lone surrogates, and neither an item nor a container that is none."""
    enter = functools.partial((DOORS | ROWS)[door], kit)
    odd, even = (["\ud83d\ude00 lone \ud800", *TEXTS[1:]], ["😀 lone \ufffd", *TEXTS[1:]])
    assert same(enter(iter(odd)), enter(even))
    with pytest.raises(InputError, match=r"^\w[\w ]* 3: expected a str, got NoneType"):
        enter([*TEXTS[:3], None, *TEXTS[4:]])
    if door in DOORS:
        with pytest.raises(InputError, match=r"^Expected a list, one item per \w[\w ]*, got dict"):
            enter(dict.fromkeys(TEXTS))


def test_rows_that_are_no_pairs_are_refused(kit):
    for door in (kit.cross.predict, lambda rows: evaluate(kit.encoder, rows)):
        for bad in ([("a", "b", "c", "d")], [None], [b"ab"]):
            with pytest.raises(InputError, match=r"^Row 0: .*tuples"):
                door(bad)
    with pytest.raises(InputError, match="specify `columns`"):
        evaluate(kit.encoder, [{"a": "one", "b": "two"}])


STREAMS = {
    "encode_stream": DOORS["encode_stream"],
    "moments": lambda kit, texts: kit.encoder.view.moments(texts),
    "whiten": lambda kit, texts: kit.encoder.whiten(texts, 2, shrinkage=0.1),
    "distil_static": lambda kit, texts: distil_static(kit.encoder, texts, 4, fit=True),
}


@pytest.mark.parametrize("door", STREAMS)
def test_streams_are_read_block_by_block(kit, door, monkeypatch):
    """A bad text far behind is found where it stands, and nothing is read far behind it."""
    for module in (view, face, distillation):
        monkeypatch.setattr(module, "BLOCK", 16)
    read = []
    texts = (read.append(number) or (7 if number == 40 else TEXTS[number % N]) for number in itertools.count())
    with pytest.raises(InputError, match=r"^Sentence 40: .*int 7"):
        STREAMS[door](kit, texts)
    assert len(read) == 48
