"""Saving writes what has changed; folders with segments, and several folders, are read as one index."""

import json

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import FormatError, InputError, MismatchError
from jaxwhiten.search import build_index, load_index, saved
from jaxwhiten.search.header import read_header
from jaxwhiten.search.strings import Lines, Strings, write_lines

D, N = 16, 600
VECTORS = (np.random.default_rng(0).standard_normal((2 * N, D)) * np.linspace(2, 0.3, D)).astype(np.float32)
CODE = SpectrumCode(bytes=6).fit(VECTORS)
QUERIES = VECTORS[-20:]
KINDS = {
    "codes": ("faiss-flat", {"codes": CODE}),
    "lists": ("faiss-ivf", {"codes": CODE, "nlist": 4, "nprobe": 4}),
    "copy": ("faiss-flat", {"codes": CODE, "rescore": "float16"}),
    "copy in bytes": ("faiss-flat", {"codes": CODE, "rescore": "int8"}),
    "jax": ("jax", {}),
    "flat": ("faiss-flat", {}),
    "whitened": ("faiss-flat", {"whitening": Whitening(8).fit(VECTORS)}),
}
REPLACED = {"codes": "codes", "flat": "vectors"}


def made(kind, rows, ids=None):
    backend, options = KINDS[kind]
    if backend != "jax":
        pytest.importorskip("faiss")
    names = None if ids is None else [ids(row) for row in rows]
    return build_index(VECTORS[rows], backend, documents=list(map(str, rows)), ids=names, **options)


def equal(one, other):
    assert one.ids.tolist() == other.ids.tolist()
    assert list(one.documents) == list(other.documents)
    (scores, found), (expected, ids) = one.search(QUERIES, 10), other.search(QUERIES, 10)
    np.testing.assert_array_equal(found, ids)
    # A product of matrices rounds by their sizes: whitened floats of a part differ in the last digit.
    np.testing.assert_allclose(scores, expected, rtol=3e-7 if one.whitening and not one.codes else 0, atol=0)


def files(folder):
    return {path.name for path in folder.iterdir()} - {"header.json", ".lock"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [None, "row {}\n“x”".format, int], ids=["numbers", "strings", "integers"])
def test_a_random_history_is_read_as_it_was(kind, ids, tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "_FEW", 0)
    rng = np.random.default_rng(1)
    index = made(kind, np.arange(200), ids)
    index.save(tmp_path)
    used, segments = 200, 0
    for number in range(16):
        present = index.ids.tolist()
        count = int(rng.integers(1, 12))
        match rng.integers(3):
            case 0:
                index.remove(rng.choice(present, count, replace=False).tolist())
            case 1:
                gone = [present[place] for place in rng.permutation(len(present))[:count]]
                index.update(gone, VECTORS[:count], documents=["new"] * count)
            case _:
                rows = np.arange(used, used + count)
                names = None if ids is None else [ids(row) for row in rows]
                index.add(VECTORS[rows], documents=list(map(str, rows)), ids=names)
                used += count
        if number % 2:
            index.save(tmp_path)
            again = load_index(tmp_path)
            equal(again, index)
            segments = max(segments, len(read_header(tmp_path).segments))
            index = again if number % 3 else index
    assert segments > 1
    index.save(tmp_path, compact=True)
    header = read_header(tmp_path)
    assert (header.segments, header.removed) == ([], None)
    equal(load_index(tmp_path), index)


@pytest.mark.parametrize("kind", REPLACED)
def test_a_change_leaves_the_files_of_other_rows(kind, tmp_path):
    index = made(kind, np.arange(N))
    index.save(tmp_path)
    before = files(tmp_path)
    index.add(VECTORS[N : N + 3], documents=["a", "b", "c"])
    index.remove([5])
    index.save(tmp_path)
    assert before < files(tmp_path)
    assert sum((tmp_path / name).stat().st_size for name in files(tmp_path) - before) < 1500
    index.remove(np.arange(100, 400))
    index.save(tmp_path)
    assert not before & {name for name in files(tmp_path) if name.startswith(REPLACED[kind])}
    equal(load_index(tmp_path), index)


def test_segments_stay_few(tmp_path):
    index = made("codes", np.arange(N))
    index.save(tmp_path)
    for row in range(N, N + 40):
        index.add(VECTORS[row : row + 1], documents=[str(row)])
        index.save(tmp_path)
    assert len(read_header(tmp_path).segments) <= 7
    equal(load_index(tmp_path), made("codes", np.arange(N + 40)))


def test_a_file_that_is_gone_is_written_again(tmp_path):
    index = made("codes", np.arange(N))
    index.save(tmp_path)
    next(tmp_path.glob("codes-*.npy")).unlink()
    index.add(VECTORS[:1], documents=["a"])
    index.save(tmp_path)
    equal(load_index(tmp_path), index)


@pytest.mark.parametrize("change", ["rows", "removed", "segment"])
def test_damaged_segments_are_refused(change, tmp_path):
    from jaxwhiten.io import seal

    index = made("codes", np.arange(N))
    index.save(tmp_path)
    index.add(VECTORS[:3], documents=["a", "b", "c"])
    index.remove([1, 2])
    index.save(tmp_path)
    header = json.loads((tmp_path / "header.json").read_text())
    if change == "rows":
        header["rows"] -= 1
    elif change == "removed":
        header["removed"] = None
    else:
        header["segments"][0]["files"].pop("codes.npy")
    (tmp_path / "header.json").write_text(json.dumps(seal(header)))
    with pytest.raises(FormatError, match="Rebuild"):
        load_index(tmp_path)


@pytest.mark.parametrize("kind", ["codes", "copy", "jax", "flat", "whitened"])
@pytest.mark.parametrize("ids", [None, str])
def test_shards_are_searched_as_one_index(kind, ids, tmp_path):
    parts = [np.arange(0, 250), np.arange(250, 260), np.arange(260, N)]
    for number, rows in enumerate(parts):
        made(kind, rows, ids).save(tmp_path / str(number))
    folders = [tmp_path / str(number) for number in range(3)]
    whole = made(kind, np.arange(N), ids)
    equal(load_index(folders), whole)
    load_index(folders).save(tmp_path / "merged")
    equal(load_index(tmp_path / "merged"), whole)
    if ids:
        index = load_index(folders[0])
        index.remove(["3"])
        index.save(folders[0])
        whole.remove(["3"])
        equal(load_index(folders), whole)


def test_shards_that_do_not_fit_are_refused(tmp_path):
    pytest.importorskip("faiss")
    made("codes", np.arange(9), str).save(tmp_path / "a")
    made("codes", np.arange(8, 20), str).save(tmp_path / "b")
    other = SpectrumCode(bytes=6).fit(VECTORS[:100])
    build_index(VECTORS[:9], codes=other, documents=["x"] * 9, ids=list("abcdefghi")).save(tmp_path / "c")
    made("codes", np.arange(9)).save(tmp_path / "d")
    build_index(VECTORS[:9]).save(tmp_path / "e")
    build_index(VECTORS[9:], "jax").save(tmp_path / "f")
    build_index(VECTORS[:99], "faiss-ivf", codes=CODE, nlist=2, nprobe=2).save(tmp_path / "g")
    build_index(VECTORS[99:], "faiss-ivf", codes=CODE, nlist=2, nprobe=2).save(tmp_path / "h")
    for pair, reason in (
        ("ab", "'8' is in more"),
        ("ac", "same code"),
        ("ad", "IDs"),
        ("ae", "normalize"),
        ("ef", "backend"),
        ("gh", "inverted lists"),
    ):
        with pytest.raises(MismatchError, match=reason):
            load_index([tmp_path / name for name in pair])


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_like_another_is_a_shard_of_it(kind, tmp_path):
    first = made(kind, np.arange(0, 250), str)
    first.save(tmp_path / "a")
    rows = np.arange(250, N)
    documents, ids = list(map(str, rows)), list(map(str, rows))
    second = build_index(VECTORS[rows], like=load_index(tmp_path / "a"), documents=documents, ids=ids)
    second.save(tmp_path / "b")
    first.add(VECTORS[rows], documents=documents, ids=ids)
    equal(load_index([tmp_path / "a", tmp_path / "b"]), first)


def test_like_sets_what_an_index_stores(tmp_path):
    like = made("flat", np.arange(9))
    for options in ({"backend": "jax"}, {"normalize": False}, {"bytes": 6}, {"nlist": 2}):
        with pytest.raises(InputError, match="`like` sets"):
            build_index(VECTORS[9:], like=like, **options)
    with pytest.raises(InputError, match="index expects 16 dimensions, got 3"):
        build_index(VECTORS[9:20, :3], like=like, documents=list("abcdefghijk"))


def test_lines_are_read_one_by_one(tmp_path):
    texts = ["", 'a "quoted" line', "two\nlines\r\n", "\u2028 \x85", "日本語", "x" * 70_000]
    write_lines(tmp_path / "lines.jsonl", texts, tmp_path / "ends.npy")
    lines = Lines(tmp_path / "lines.jsonl", len(texts), tmp_path / "ends.npy")
    assert [lines[row] for row in range(len(texts))] == texts
    assert list(lines) == texts
    (tmp_path / "lines.jsonl").write_text('"a"\n5\n')
    np.save(tmp_path / "ends.npy", [4, 6])
    lines = Lines(tmp_path / "lines.jsonl", 2, tmp_path / "ends.npy")
    assert lines[0] == "a"
    with pytest.raises(FormatError, match="line 2"):
        lines[1]
    with pytest.raises(FormatError, match="does not contain 3 lines"):
        Lines(tmp_path / "lines.jsonl", 3, tmp_path / "ends.npy")


def test_strings_follow_a_list():
    rng = np.random.default_rng(0)
    strings, expected = Strings([["a", "b"], ["c"]]), ["a", "b", "c"]
    for number in range(40):
        if rng.random() < 0.6:
            new = [f"{number}.{i}" for i in range(rng.integers(0, 5))]
            strings, expected = strings.plus(new), expected + new
        else:
            rows = np.sort(rng.permutation(len(expected))[: max(1, len(expected) - 2)])
            rows = rows[::-1] if rng.random() < 0.3 else rows
            strings, expected = strings.taken(rows), [expected[row] for row in rows]
        assert (list(strings), len(strings), strings[-1]) == (expected, len(expected), expected[-1])
        assert strings == expected
        assert strings[1:3] == expected[1:3]
    with pytest.raises(IndexError):
        strings[len(expected)]
