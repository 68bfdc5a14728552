"""An index searched by another encoder: what is embedded, what is kept, and what is refused."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import FormatError, InputError, MismatchError, OutputError
from jaxwhiten.search import Upgraded, build_index, load_index
from jaxwhiten.search.header import read_header
from jaxwhiten.search.upgraded import Vectors, read_upgrade, share_embedded

N, D = 300, 16
TEXTS = [f"text {number}" for number in range(N)]


class Recorded:
    """An encoder whose vectors are known; it counts what it is asked for."""

    def __init__(self, name, vectors, code=None):
        self.name, self.code, self.asked = name, code, []
        self.vectors = dict(zip(TEXTS, vectors, strict=True)) if isinstance(vectors, np.ndarray) else vectors
        self.head, self.pooling = SimpleNamespace(name="auto", code=code), "auto"
        self.documents = self

    def record(self):
        fingerprint = f"{self.name}{'' if self.code is None else ', coded'}"
        return {"model": self.name, "fingerprint": fingerprint, "pooling": "auto", "max_length": 8}

    encoding = record
    space = property(record)

    @property
    def floats(self):
        return self if self.code is None else Recorded(self.name, self.vectors)

    queries = floats

    def with_pooling(self, pooling):
        return self

    def __call__(self, texts):
        self.asked += texts
        found = np.array([self.vectors[text] for text in texts], np.float32)
        return found if self.code is None else self.code.encode(found)


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    new = rng.standard_normal((N, D)).astype(np.float32)
    old = (new @ rng.standard_normal((D, D)) + 0.5 * rng.standard_normal((N, D))).astype(np.float32)
    return old, new


def make(pair, folder=None, candidates=20, code=None, backend="jax", **more):
    old, new = Recorded("old", pair[0]), Recorded("new", pair[1], code)
    index = build_index(pair[0], backend, encoding=old.encoding(), documents=TEXTS, **more)
    if folder is not None:
        index.save(folder)
        index = load_index(folder)
    return Upgraded(index, old, new, candidates, folder=folder), new


def order(hits):
    return [[hit.id for hit in found] for found in hits]


def wanted(pair, upgraded, queries, k, candidates):
    """The first of the old index's candidates by the new cosine, computed here."""
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in pair]
    found = []
    for query in queries:
        near = np.argsort(-unit[0] @ unit[0][query])[:candidates]
        found.append(near[np.argsort(-unit[1][near] @ unit[1][query])[:k]].tolist())
    return found


def test_only_what_is_found_is_embedded_and_once(pair):
    upgraded, new = make(pair)
    queries = [TEXTS[row] for row in (3, 50, 120)]
    assert order(upgraded.search(queries, 5)) == wanted(pair, upgraded, (3, 50, 120), 5, 20)
    documents = new.asked[:-3]
    assert len(documents) == len(set(documents)) <= 60
    assert upgraded.share == pytest.approx(len(documents) / N)
    before = len(new.asked)
    upgraded.search(queries[:1], 5)
    assert new.asked[before:] == queries[:1]
    assert upgraded.search([], 5) == []


def test_all_candidates_give_what_everything_embedded_gives(pair):
    upgraded, _ = make(pair, candidates=N)
    fresh = build_index(pair[1], "jax", documents=TEXTS)
    found = upgraded.search(TEXTS[:9], 10)
    scores, ids = fresh.search(pair[1][:9], 10)
    assert order(found) == ids.tolist()
    np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], scores, atol=1e-6)


def test_filling_goes_by_use_and_the_new_index_then_stands_alone(pair, tmp_path):
    upgraded, new = make(pair, tmp_path / "index")
    upgraded.search(TEXTS[:1], 5)
    near = [hit.text for hit in upgraded.index.hits(pair[0][:1], 40)[0][20:]]
    del new.asked[:]
    assert upgraded.fill(15) == 15
    assert set(new.asked) <= set(near)
    with pytest.raises(InputError, match="Not embedded yet: 265 documents"):
        upgraded.finished()
    told = read_upgrade(tmp_path / "index", upgraded.index.encoding)
    assert share_embedded(tmp_path / "index", read_header(tmp_path / "index"), told) == pytest.approx(35 / N)
    again = Upgraded(upgraded.index, upgraded.old, new, 20, folder=tmp_path / "index")
    assert again.share == pytest.approx(35 / N)
    assert again.fill() == 265
    fresh = build_index(pair[1], "jax", documents=TEXTS)
    assert order(again.search(TEXTS[:9], 10)) == fresh.search(pair[1][:9], 10)[1].tolist()
    again.finished().save(tmp_path / "index")
    alone = load_index(tmp_path / "index")
    assert alone.encoding["model"] == "new"
    assert read_upgrade(tmp_path / "index", alone.encoding) is None
    np.testing.assert_array_equal(alone.search(pair[1][:9], 10)[1], fresh.search(pair[1][:9], 10)[1])
    with pytest.raises(InputError, match="already"):
        Upgraded(alone, new, new)


def test_a_coded_index_keeps_its_code_and_an_encoder_its_own(pair):
    upgraded, _ = make(pair, codes="spectrum", bytes=8, ids=[f"d{row}" for row in range(N)])
    upgraded.fill()
    alone = upgraded.finished()
    assert alone.codes["bytes"] == 8
    assert alone.ids.tolist() == upgraded.index.ids.tolist()
    code = SpectrumCode(bytes=6).fit(pair[1])
    coded, _ = make(pair, code=code, candidates=N)
    found = coded.search(TEXTS[:9], 5)
    assert coded.vectors.rows([next(iter(coded.vectors.slots))]).dtype == np.uint8
    scores = code.scores(pair[1][:9], code.encode(pair[1]))
    assert order(found) == np.argsort(-scores, kind="stable")[:, :5].tolist()
    again = coded.finished()
    assert again.codes["bytes"] == 6
    assert order(again.hits(pair[1][:9], 5)) == order(found)


def test_a_document_that_was_replaced_is_embedded_anew(pair, tmp_path):
    upgraded, new = make(pair, tmp_path / "index", candidates=N)
    upgraded.search(TEXTS[:1], 5)
    index = load_index(tmp_path / "index")
    index.update([7], pair[0][7:8], documents=["another"])
    index.save(tmp_path / "index")
    new.vectors["another"] = -pair[1][0]
    again = Upgraded(load_index(tmp_path / "index"), upgraded.old, new, N, folder=tmp_path / "index")
    assert again.share == pytest.approx(1 - 1 / N)
    assert again.search(TEXTS[:1], N)[0][-1].text == "another"
    upgraded.fill()
    with pytest.raises(MismatchError, match="another writer has changed"):
        upgraded.finished().save(tmp_path / "index")


@pytest.mark.parametrize("embedded", ["some", "all"])
def test_an_index_that_changes_in_this_process_is_followed(pair, embedded):
    """Removed documents are gone, new texts replace old ones, and added ones are found, before and after the end."""
    upgraded, new = make(pair, candidates=N)
    if embedded == "all":
        upgraded.fill()
        upgraded.search(TEXTS[:1], 5)  # by the finished index
    index, found = upgraded.index, lambda: upgraded.search(["q"], 3)[0]
    new.vectors |= {"q": pair[1][0], "added": pair[1][0], "changed": pair[1][0]}
    upgraded.old.vectors |= {"q": pair[0][0]}
    assert found()[0].id == 0
    index.remove([0])
    assert 0 not in [hit.id for hit in found()]
    index.add(pair[0][:1], documents=["added"])
    assert upgraded.share < 1
    with pytest.raises(InputError, match="Not embedded yet: 1 document"):
        upgraded.finished()
    assert (found()[0].id, found()[0].text) == (N, "added")
    index.update([7], pair[0][:1], documents=["changed"])
    assert {hit.text for hit in found()[:2]} == {"added", "changed"}
    upgraded.fill()
    alone = upgraded.finished()
    assert (alone.ids.tolist(), list(alone.documents)) == (index.ids.tolist(), list(index.documents))
    assert {hit.id for hit in found()[:2]} == {N, 7}


def test_a_search_needs_no_write_access_and_filling_does(pair, tmp_path, monkeypatch):
    upgraded, new = make(pair, tmp_path / "index")
    upgraded.fill(40)
    before = sorted(path.name for path in (tmp_path / "index" / "upgrade").iterdir())

    def full(path, *_, **__):
        raise OutputError(f"{path}: cannot be written")

    monkeypatch.setattr("jaxwhiten.search.upgraded.save_tensors", full)
    again = Upgraded(load_index(tmp_path / "index"), upgraded.old, new, 30, folder=tmp_path / "index")
    with pytest.warns(UserWarning, match="upgrade is not writable: new vectors stay in memory"):
        assert order(again.search(TEXTS[100:101], 1)) == [[100]]
    with pytest.raises(OutputError):
        again.fill()
    assert sorted(path.name for path in (tmp_path / "index" / "upgrade").iterdir()) == before


def test_a_new_encoder_that_moved_is_recorded(pair, tmp_path):
    upgraded, new = make(pair, tmp_path / "index")
    (tmp_path / "moved").mkdir()
    moved, encoding = Recorded("new", pair[1]), {**new.encoding(), "model": str(tmp_path / "moved")}
    moved.record = lambda: encoding
    Upgraded(upgraded.index, upgraded.old, moved, 20, folder=tmp_path / "index")
    told = read_upgrade(tmp_path / "index", upgraded.index.encoding)
    assert told["new"]["folder"] == str(tmp_path / "moved")


def test_what_does_not_fit_is_refused_and_nothing_is_lost(pair, tmp_path):
    folder = tmp_path / "index"
    upgraded, new = make(pair, folder)
    upgraded.search(TEXTS[:3], 5)
    parts = {path.name: path.read_bytes() for path in (folder / "upgrade").iterdir()}
    other = Recorded("other", pair[1])
    with pytest.raises(MismatchError, match=r"the new encoder in .*: expected model='new', got 'other'"):
        Upgraded(upgraded.index, upgraded.old, other, folder=folder)
    with pytest.raises(MismatchError, match="expected model='old', got 'other'"):
        Upgraded(upgraded.index, other, new, folder=folder)
    with pytest.raises(InputError, match=r"candidates=.*: expected an integer"):
        Upgraded(upgraded.index, upgraded.old, new, 0)
    without = build_index(pair[0], "jax", encoding=upgraded.old.encoding())
    with pytest.raises(MismatchError, match="stores no documents"):
        Upgraded(without, upgraded.old, new)
    assert {path.name: path.read_bytes() for path in (folder / "upgrade").iterdir()} == parts
    next(folder.glob("documents-*")).unlink()
    with pytest.raises(FormatError, match="missing"):
        load_index(folder)
    part = next((folder / "upgrade").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(FormatError, match="part-"):
        Vectors(folder / "upgrade", "new")


def test_small_parts_become_one_and_two_processes_share_them(tmp_path):
    first, second = Vectors(tmp_path, "f"), Vectors(tmp_path, "f")
    rows = np.arange(200, dtype=np.float32)[:, None] * np.ones(4, np.float32)
    keys = [number.to_bytes(16, "little") for number in range(200)]
    for number in range(100):
        first.add(keys[number : number + 1], rows[number : number + 1], [])
        second.add(keys[2 * number : 2 * number + 2], rows[2 * number : 2 * number + 2], keys[:1])
    for expected in (200, 1):
        both = Vectors(tmp_path, "f")
        assert len(list(tmp_path.iterdir())) == expected
        assert len(both.slots) == 200
        both.join()
    np.testing.assert_array_equal(both.rows(keys), rows)
    with pytest.raises(FormatError, match="belongs to a different upgrade"):
        Vectors(tmp_path, "g")


def test_threads_search_while_it_fills(pair):
    upgraded, new = make(pair)
    filling = threading.Thread(target=upgraded.fill)
    filling.start()
    found = [order(upgraded.search([text], 1))[0][0] for text in TEXTS[:40]]
    filling.join(timeout=60)
    assert not filling.is_alive()
    assert found == list(range(40))
    assert len(upgraded.vectors.slots) == N == len([text for text in new.asked if text]) - 40
