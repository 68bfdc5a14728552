"""Every function that takes texts takes them in any container, by position, and refuses what is no text."""

import importlib.util
import itertools

import numpy as np
import pytest

from jaxwhiten import CrossEncoder, Encoder, build_index, evaluate, load_index, paraphrase_mining
from jaxwhiten.datasets import Examples, from_pairs
from jaxwhiten.encoding import EmbeddingStore, distil_static, distillation
from jaxwhiten.encoding import encoder as face
from jaxwhiten.errors import InputError
from jaxwhiten.export import databases
from jaxwhiten.search import add_text, search_text
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training import mine_negatives, tokenize_columns
from jaxwhiten.views import view
from tests.conftest import own_cache
from tests.tiny import SENTENCES
from train.pairs import pair_table

TEXTS = [f"{text} {number}" for number, text in enumerate(SENTENCES * 2)]
N, LAST = len(TEXTS), TEXTS[::-1]
SCORES = np.arange(N) % 6
VECTORS = np.random.default_rng(0).standard_normal((N, 32), dtype=np.float32)
RECIPE = """
SPACE = {}
def connect(place, check): return []
def known(db): return set()
def add(db, ids, texts, vectors): print(texts, ids)
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    monkeypatch.setattr(distillation, "ENOUGH", 3)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def cross(cross_encoder):
    return CrossEncoder.from_pretrained(cross_encoder)


class Kit:
    """The doors. Each takes texts and returns something that depends on every text and its position."""

    def __init__(self, encoder, cross, folder):
        self.encoder, self.cross, self.folder = encoder, cross, folder
        self.tokenizer = BulkTokenizer(encoder.tokenizer.folder, 32, 200)

    def index(self, texts=TEXTS):
        encoding, ids = self.encoder.encoding(), [f"id {number}" for number in range(N)]
        return build_index(VECTORS, "jax", documents=texts, ids=ids, encoding=encoding)

    def encode(self, texts):
        return self.encoder.encode(texts)

    def encode_query(self, texts):
        return self.encoder.encode_query(texts)

    def encode_document(self, texts):
        return self.encoder.encode_document(texts)

    def encode_stream(self, texts):
        return np.concatenate(list(self.encoder.encode_stream(texts, block_size=16)))

    def moments(self, texts):
        found = self.encoder.moments(texts)
        return found.n, found.mean

    def whiten(self, texts):
        return self.encoder.whiten(texts, 2, shrinkage=0.1).encode(TEXTS[:2])

    def store(self, texts):
        return EmbeddingStore(self.folder / "store").encode(self.encoder, texts)

    def build_index(self, texts):
        return self.index(texts).documents

    def add(self, texts):
        index = self.index()
        index.add(VECTORS, documents=texts, ids=[f"new {number}" for number in range(N)])
        return index.documents

    def update(self, texts):
        index = self.index(LAST)
        index.update(index.ids, VECTORS, documents=texts)
        return [hit.text for (hit,) in index.hits(VECTORS, 1)]

    def add_text(self, texts):
        index = self.index()
        add_text(index, self.encoder, texts, [f"new {number}" for number in range(N)])
        return index.documents

    def search_text(self, texts):
        return search_text(self.index(), self.encoder, texts, 3)

    def paraphrase_mining(self, texts):
        return paraphrase_mining(self.encoder, texts)

    def evaluate_first(self, texts):
        return evaluate(self.encoder, (texts, LAST, SCORES), resamples=10).spearman

    def evaluate_second(self, texts):
        return evaluate(self.encoder, (LAST, texts, SCORES), resamples=10).spearman

    def evaluate_rows(self, texts):
        return evaluate(self.encoder, zip(texts, LAST, SCORES, strict=True), resamples=10).spearman

    def predict(self, texts):
        return self.cross.predict(zip(texts, LAST, strict=True))

    def predict_second(self, texts):
        return self.cross.predict(zip(LAST, texts, strict=True))

    def rank(self, texts):
        return self.cross.rank("A man", texts)

    def rerank_queries(self, texts):
        return self.cross.rerank(texts, LAST, np.arange(2 * N).reshape(N, 2) % N)

    def rerank_documents(self, texts):
        return self.cross.rerank(LAST, texts, np.arange(2 * N).reshape(N, 2) % N)

    def distil_static(self, texts):
        return distil_static(self.encoder, texts, 4, fit=True).encode(TEXTS[:3])


    def fill(self, texts):
        (self.folder / "recipe.py").write_text(RECIPE)
        vectors = []
        encode = self.encoder.encode
        databases.fill(self.folder, "", range(N), texts, lambda some: vectors.append(encode(some)), keep=True)
        return vectors[0]

    def examples(self, texts):
        return Examples({"a": LAST, "b": texts}).columns["b"]

    def pair_table(self, texts):
        return pair_table(Examples({"a": LAST, "b": texts}, SCORES), self.tokenizer).tokens.flat

    def tokenize_columns(self, texts):
        table = tokenize_columns([LAST, texts], self.encoder.tokenizer)
        return table.tokens.flat, table.sentences

    def mine_negatives(self, texts):
        return mine_negatives(self.encoder, texts, LAST, count=1, depth=4)

    def from_pairs(self, texts):
        rows = ((str(n), str(n), text, LAST[n], True) for n, text in enumerate(texts))
        return from_pairs("own", rows).queries


DOORS = [name for name in vars(Kit) if not name.startswith("_") and name != "index"]
# These read the container themselves, row by row.
ROWS = ("evaluate_rows", "predict", "predict_second", "from_pairs")
ONE_IS_ENOUGH = ("encode", "encode_query", "encode_document")


@pytest.fixture
def kit(encoder, cross, tmp_path):
    return Kit(encoder, cross, tmp_path)


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
    yield None, 'got NoneType None: remove missing values, or replace them with ""'
    yield float("nan"), "got float nan: remove missing"
    yield np.int64(7), r"got int64 np.int64\(7\): convert it with str\(\)"
    yield b"bytes", "got bytes b'bytes': decode it"
    yield ["a", "b"], r"got list \['a', 'b'\]: pass a flat list"
    yield {"text": "a"}, "got dict {'text': 'a'}: pass a flat list"
    if pandas := library("pandas"):
        yield pandas.NA, "got NAType <NA>: remove missing"
    if arrow := library("pyarrow"):
        yield arrow.scalar(None, "string"), "got NoneType None: remove missing"


def bad_containers():
    """What holds no texts in an order, and what is said of it."""
    yield "a" * N, "got str 'aaa.*: put it in a list"
    yield b"a" * N, "got bytes b'aaa.*: decode it"
    yield dict.fromkeys(TEXTS), "got dict .*: pass a flat list"
    yield set(TEXTS), "got set .*: pass a flat list"
    yield np.array([TEXTS, TEXTS]), "got an array of 2 dimensions: pass one of 1"
    yield np.array(TEXTS[0]), "got an array of 0 dimensions: pass one of 1"
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


@pytest.mark.parametrize("door", DOORS)
def test_any_container_of_texts_gives_what_a_list_gives(kit, door):
    expected = getattr(kit, door)(TEXTS)
    for name, make in containers():
        assert same(getattr(kit, door)(make(TEXTS)), expected), name


@pytest.mark.parametrize("door", DOORS)
def test_an_item_that_is_no_text_is_named_by_position_and_type(kit, door):
    for bad, message in bad_items():
        with pytest.raises(InputError, match=rf"^\w[\w ]* 3: expected a str, {message}"):
            getattr(kit, door)([*TEXTS[:3], bad, *TEXTS[4:]])


@pytest.mark.parametrize("door", [door for door in DOORS if door not in ROWS])
def test_what_holds_no_texts_in_order_is_refused(kit, door):
    for bad, message in bad_containers():
        if isinstance(bad, str) and door in ONE_IS_ENOUGH:
            assert getattr(kit, door)(bad).shape == (32,)
            continue
        with pytest.raises(InputError, match=rf"^Expected a list, one item per \w[\w ]*, {message}"):
            getattr(kit, door)(bad)


def test_rows_that_are_no_pairs_are_refused(kit):
    tables = [library("pandas").DataFrame({"a": TEXTS, "b": LAST})] if library("pandas") else []
    for door in (kit.cross.predict, lambda rows: evaluate(kit.encoder, rows)):
        for bad in (["ab"], [("a", "b", "c", "d")], [None], [b"ab"]):
            with pytest.raises(InputError, match=r"^Row 0: expected .*, got .*: pass tuples"):
                door(bad)
    with pytest.raises(InputError, match=r"^Row 0: expected .*, got .*: pass tuples"):
        kit.cross.predict([{"a": "one", "b": "two"}])
    for bad in tables:
        with pytest.raises(InputError, match=r"^Expected a list, one item per .*got a DataFrame: pass its columns"):
            kit.cross.predict(bad)
    for bad in ([{"a": "one", "b": "two"}], *tables):  # evaluate reads them as tables
        with pytest.raises(InputError, match="two columns and no score"):
            evaluate(kit.encoder, bad)


@pytest.mark.parametrize("door", DOORS)
def test_lone_surrogates_become_replacement_characters(kit, door):
    odd, even = (["\ud83d\ude00 lone \ud800", *TEXTS[1:]], ["😀 lone \ufffd", *TEXTS[1:]])
    assert same(getattr(kit, door)(odd), getattr(kit, door)(even))


def test_what_is_encoded_is_saved_loaded_and_printed(kit, tmp_path):
    texts = ["lone \ud800 surrogate", "nul\0inside", "line\u2028end\r\n", "", "\ud83d\ude00", *TEXTS[5:]]
    index = kit.index(texts)
    index.save(tmp_path / "index")
    found = [hit.text for (hit,) in load_index(tmp_path / "index").hits(VECTORS, 1)]
    assert found == index.documents
    assert found[:5] == ["lone \ufffd surrogate", *texts[1:4], "😀"]
    assert "\n".join(found).encode()
    assert np.array_equal(kit.encode(found), kit.encode(texts))


@pytest.mark.parametrize("change", ["add", "update"])
@pytest.mark.parametrize("bad", [None, 7, float("nan")])
def test_texts_are_checked_before_an_index_changes(kit, tmp_path, change, bad):
    index = kit.index()
    index.save(tmp_path / "index")
    ids = {"ids": ["new"]} if change == "add" else {"ids": ["id 3"]}
    with pytest.raises(InputError, match=r"^Document 0: expected a str"):
        getattr(index, change)(vectors=VECTORS[:1], documents=[bad], **ids)
    index.save(tmp_path / "index")
    again = load_index(tmp_path / "index")
    assert again.documents == TEXTS
    assert again.size == index.size == N


def test_the_texts_of_an_index_are_its_own(kit):
    texts = list(TEXTS)
    index = kit.index(texts)
    texts[3] = None
    assert index.documents == TEXTS


@pytest.mark.parametrize("door", ["encode_stream", "moments", "whiten", "distil_static"])
def test_streams_are_read_block_by_block(kit, door, monkeypatch):
    """A bad text far behind is found where it stands, and nothing is read far behind it."""
    for module in (view, face, distillation):
        monkeypatch.setattr(module, "BLOCK", 16)
    read = []
    texts = (read.append(number) or (7 if number == 40 else TEXTS[number % N]) for number in itertools.count())
    if door == "encode_stream":
        blocks = kit.encoder.encode_stream(texts, block_size=16)
        assert len(next(blocks)) == 16
        assert len(read) <= 32
        with pytest.raises(InputError, match=r"^Sentence 40: expected a str, got int 7"):
            list(blocks)
    else:
        with pytest.raises(InputError, match=r"^Sentence 40: expected a str, got int 7"):
            getattr(kit, door)(texts)
    assert len(read) == 48
