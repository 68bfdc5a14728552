"""What an index keeps besides texts follows its documents through every change, into hits and files."""

import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.search import Hit, build_index, load_index

pytest.importorskip("faiss")
VECTORS = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
ROWS = [{"title": f"“{row}”\n", "year": row, "tags": [None, {"deep": row / 2}]} for row in range(60)]


def made(rows=range(40), **options):
    rows = list(rows)
    metadata = [ROWS[row] for row in rows]
    return build_index(VECTORS[rows], ids=[f"d{row}" for row in rows], metadata=metadata, **options)


def check(index):
    for id in index.ids:
        (hit,) = index.hits(VECTORS[[int(id[1:])]], 1)[0]
        assert (hit.id, hit.metadata) == (id, index[id].metadata)
    return index


@pytest.mark.parametrize("options", [{}, {"bytes": 4}], ids=["floats", "codes"])
def test_it_follows_its_document(options, tmp_path):
    index = check(made(**options))
    index.save(tmp_path / "docs.db")
    index.add(VECTORS[40:44], ids=[f"d{row}" for row in range(40, 44)], metadata=ROWS[40:44])
    index.remove(["d3", "d41"])
    index.update(["d7"], VECTORS[7:8], metadata=[{"new": "é"}])
    assert index["d7"].metadata == {"new": "é"}
    again = check(load_index(tmp_path / "docs.db"))
    assert list(again) == list(index)


def test_what_is_no_json_is_refused():
    rows = [{"a": 1}, None]
    for bad, reason in (
        ("text", "expected a dictionary"),
        ({1: 2}, "JSON"),
        ({"a": float("nan")}, "JSON"),
        ({"a": object()}, "JSON"),
        ({"a": "\ud800"}, "JSON"),
    ):
        rows[1] = bad
        with pytest.raises(InputError, match=f"metadata: row 1: .*{reason}"):
            build_index(VECTORS[:2], metadata=rows)
    with pytest.raises(InputError, match="1 row of metadata but 2"):
        build_index(VECTORS[:2], metadata=rows[:1])


def test_a_change_brings_it_as_the_index_keeps_it():
    index = made()
    with pytest.raises(InputError, match="stores metadata: pass `metadata`"):
        index.add(VECTORS[:1], ids=["e"])
    with pytest.raises(InputError, match="stores no metadata: omit `metadata`"):
        build_index(VECTORS).add(VECTORS[:1], metadata=[{}])
    assert index.size == 40


def test_a_record_of_a_hit_has_it_if_there_is_some():
    assert Hit("a", 0.5, None).record() == {"id": "a", "score": 0.5, "text": None}
    assert Hit("a", 0.5, "t", {"x": 1}).record() == {"id": "a", "score": 0.5, "text": "t", "metadata": {"x": 1}}
