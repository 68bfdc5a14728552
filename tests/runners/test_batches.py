"""A batch of texts to vectors and a batch of vectors to moments, without an engine."""

import json
import os

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.arrays import vectors_of
from jaxwhiten.encoding import arrow
from jaxwhiten.errors import DataError, InputError, NonFiniteError
from jaxwhiten.runtime import hardware
from tests.runners.program import equal
from tests.sentences import generated

pa = pytest.importorskip("pyarrow")
BAD = {3: None, 7: b"\xff\xfe", 11: "x" * 10_000_000}
TEXTS = [BAD.get(i, text) for i, text in enumerate(generated(20))]
GOOD = [i for i in range(20) if i not in BAD]


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def encoded(text):
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_string()])
def test_a_bad_row_has_its_error_and_the_others_their_vectors(encoder, kind):
    column = pa.array([encoded(text) for text in TEXTS], pa.binary())
    column = column.view(kind) if kind != pa.large_string() else column.cast(pa.large_binary()).view(kind)
    batch = pa.RecordBatch.from_pydict({"key": list(range(20)), "text": column, "lang": ["en", "de"] * 10})
    found = arrow.embedded_batch(encoder, batch, "text", "key", ["lang"])
    assert found.column_names == ["id", "lang", "vector", "error"]
    errors = found["error"].to_pylist()
    assert [i for i, error in enumerate(errors) if error is None] == GOOD
    assert errors[3] == "None is not text"
    assert errors[7].startswith("not UTF-8: b'\\xff")
    assert errors[11] == "longer than 1048576 characters"
    alone = encoder.encode([TEXTS[i] for i in GOOD])
    np.testing.assert_allclose(vectors_of(found["vector"]), alone, atol=1e-6)
    assert [vector is None for vector in found["vector"].to_pylist()] == [i in BAD for i in range(20)]
    told = json.loads(found.schema.metadata[b"jaxwhiten"])
    assert (told["dimension"], told["dtype"]) == (32, "float32")
    assert told["space"]["fingerprint"] == encoder.view.fingerprint


@pytest.mark.parametrize("rows", [list, pa.Table.from_pylist])
def test_a_column_that_no_row_has_is_an_error_and_a_key_that_some_lack_is_null(encoder, rows):
    batch = rows([{"text": "a man", "key": 1}, {"text": "a cat"}])
    assert arrow.embedded_batch(encoder, batch, "text", "key", [])["id"].to_pylist() == [1, None]
    with pytest.raises(DataError, match="no column 'kye'; the columns are text, key"):
        arrow.embedded_batch(encoder, batch, "text", "kye", [])


def test_a_batch_of_bad_rows_alone(encoder):
    found = arrow.embedded(encoder, [None, 7], {})
    assert found["vector"].to_pylist() == [None, None]
    assert arrow.of_column(found, "vector").n == 0


def sent(moments):
    return Moments.unpacked(np.frombuffer(moments.packed().tobytes()))


def test_moments_merge_and_travel():
    rows = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 5)})
    total = Moments()
    for start in (0, 25, 50, 60):  # the last one is empty
        part = arrow.of_column(table.slice(start, 25), "vector")
        total = sent(total.merge(sent(part)))
    equal(total, rows)
    total.update(rows)  # arrays that were sent can be written to


def test_a_worker_has_the_threads_of_its_share(tiny_model, monkeypatch):
    for name in ("NPROC", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arrow.loaded({"model": tiny_model, "pooling": "mean"})
    assert (os.environ["NPROC"], os.environ["RAYON_NUM_THREADS"], hardware.cores()) == ("1", "1", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    arrow.loaded({"model": tiny_model, "pooling": "mean"})  # what is set already stays
    assert os.environ["NPROC"] == "1"


def test_vectors_that_no_one_encoder_made():
    with pytest.raises(InputError, match=r"different widths, \[2, 3\]"):
        vectors_of(pa.array([[1.0, 2.0], [1.0, 2.0, 3.0], None]))
    with pytest.raises(InputError, match="without their code"):
        arrow.of_column(pa.table({"code": pa.array([b"ab", b"cd"], pa.binary(2))}), "code")
    with pytest.raises(NonFiniteError):
        arrow.of_column(pa.table({"vector": [[1.0, None]]}), "vector")
