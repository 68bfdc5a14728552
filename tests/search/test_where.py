"""Filters: what holds, what is refused, and that they only read."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index

LANGUAGES = ["en", "de", "fr"]
ROWS = [{"date": f"20{row:02d}-05-01", "lang": LANGUAGES[row % 3], "n": row / 2, 'a "name"': row} for row in range(60)]
VECTORS = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def index():
    ids = [f"d{row}" for row in range(60)]
    return build_index(VECTORS, "jax", ids=ids, documents=[f"text {row}" for row in range(60)], metadata=ROWS)


def chosen(index, where, **options):
    return {int(hit.id[1:]) for hit in index.hits(VECTORS[:1], 60, where=where, **options)[0]}


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("date >= '2030-01-01' AND lang = 'en'", lambda r: r["date"] >= "2030" and r["lang"] == "en"),
        ("n BETWEEN 3 AND 5 OR id = 'd59'", lambda r: 3 <= r["n"] <= 5 or r["n"] == 29.5),
        ("text LIKE '%7' AND lower(lang) <> 'DE' -- or not", lambda r: r["n"] * 2 % 10 == 7),
        ('"a ""name""" IN (1, 2)', lambda r: r["n"] in (0.5, 1)),
        ({"date": {"gte": "2030", "lt": "2040"}}, lambda r: "2030" <= r["date"] < "2040"),
        ({"lang": ["en", "de"], "n": {"ne": 3}}, lambda r: r["lang"] != "fr" and r["n"] != 3),
        ({'a "name"': {"lte": 4, "gt": 1}}, lambda r: 0.5 < r["n"] <= 2),
        ({"lang": {"eq": None}}, lambda r: False),
        ({"lang": "x' OR 1 = 1 --"}, lambda r: False),
        ({}, lambda r: True),
    ],
)
def test_a_filter_chooses_documents(where, holds, index):
    assert chosen(index, where) == {row for row, metadata in enumerate(ROWS) if holds(metadata)}


def test_a_filter_and_ids_both_hold(index):
    assert chosen(index, "lang = 'en'", among=["d0", "d1", "d3"]) == {0, 3}


@pytest.mark.parametrize(
    "where",
    [
        "",
        "date >=",
        "nope = 1",
        "1); DELETE FROM documents; --",
        "1) UNION SELECT data FROM pages --",
        "row IN (SELECT rowid FROM sqlite_master)",
        "load_extension('x')",
        "randomblob(1000000000) IS NULL",
        "EXISTS (WITH RECURSIVE x(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x) SELECT max(a) FROM x)",
        "(SELECT count(*) FROM documents a, documents b, documents c, documents d, documents e, documents f)",
        {"lan": "en"},
        {"lang": {"about": "en"}},
        {"lang": {"in": "en"}},
        {"lang": {"gt": None}},
        {"n": {"gt": [1]}},
        {"n": 2**70},
    ],
)
def test_what_is_no_filter_is_refused(where, index, monkeypatch):
    monkeypatch.setattr("jaxwhiten.search.where._MOST", 5)
    with pytest.raises(InputError, match=r"where|column|comparison"):
        index.search(VECTORS[:1], 3, where=where)
    assert len(index) == len(chosen(index, None)) == 60


@settings(max_examples=50)
@given(st.text(max_size=30))
def test_no_text_does_more_than_read(index, where):
    with contextlib.suppress(InputError, ValueError):
        chosen(index, where)
    assert len(index) == len(chosen(index, None)) == 60


def test_columns_follow_the_metadata():
    """Of later documents, of other types, and of names that no column can have."""
    odd = {"ID": "x", "Row": 1, "": 2, "a\0b": 3, "lang": ["en"], "Lang": "de", "yes": True, "big": 2**63 + 1}
    index = build_index(VECTORS[:2], "jax", metadata=[{"lang": "en"}, {"lang": None}])
    index.add(VECTORS[2:4], metadata=[odd, {"n": 1.5}])
    assert [document.metadata for document in index] == [{"lang": "en"}, {"lang": None}, odd, {"n": 1.5}]
    for where, ids in (("n > 1", {3}), ("yes", {2}), ("big > 1e18", {2}), ("lang LIKE '%en%'", {0, 2})):
        assert {hit.id for hit in index.hits(VECTORS[:1], 9, where=where)[0]} == ids
