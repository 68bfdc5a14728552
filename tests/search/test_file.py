"""The file of an index: what it holds, who else reads it, and every damage, behind checksums that were mended."""

import copy
import json
import math
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from jaxwhiten import Space, Whitening
from jaxwhiten.commands import cli
from jaxwhiten.errors import FormatError, InputError, MismatchError
from jaxwhiten.io import seal
from jaxwhiten.search import build_index, load_index
from jaxwhiten.store import Pages
from tests.conftest import slow_but

N, D = 200, 16
VECTORS = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
SPACE = Space(model="m", fingerprint="f00", pooling="mean", max_length=64)
KINDS = {
    "jax": {},
    "faiss-flat": {},
    "jax codes": {"bytes": 6, "rescore": "float16"},
    "jax ubinary": {"codes": "ubinary"},
    "faiss-flat codes": {"bytes": 6, "rescore": "float16"},
    "faiss-flat int8": {"codes": "int8"},
    "faiss-flat whitened": {"bytes": 6, "whitening": Whitening(14).fit(VECTORS)},
    "faiss-ivf": {"bytes": 6, "nlist": 4, "nprobe": 4},
}
MISSING = object()
WRONG = [MISSING, None, True, 0, -1, 7, 2**31, 10**30, 10**400, 0.5, math.nan, math.inf, 1e308]
WRONG += ["", "abc", "../x", "a\0b", "\ud800", "é" * 5000, [], [1], [None], {}, {"name": 5}, {"a": {"b": []}}]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    for kind, options in KINDS.items():
        if kind.startswith("faiss"):
            pytest.importorskip("faiss")
        texts = list(map(str, range(N)))
        build_index(VECTORS, kind.split()[0], documents=texts, space=SPACE, **options).save(root / kind)
    return root


@pytest.fixture
def copied(files, tmp_path):
    return lambda kind: shutil.copy(files / kind, tmp_path / "docs.db")


def edit(path, work):
    with closing(sqlite3.connect(path)) as connection, connection:
        return work(connection)


def header_of(path):
    return edit(path, lambda c: json.loads(c.execute("SELECT value FROM header WHERE name = 'index'").fetchone()[0]))


def put_header(path, header):
    text = json.dumps(seal(header))
    edit(path, lambda c: c.execute("UPDATE header SET value = ? WHERE name = 'index'", [text]))


def found(path):
    return load_index(path).search(VECTORS[:3], 3)


def test_every_sqlite_reads_it(copied):
    path = copied("faiss-flat")
    rows = edit(path, lambda c: c.execute("SELECT id, text FROM documents WHERE id > 196").fetchall())
    assert rows == [(number, str(number)) for number in range(197, 200)]
    assert edit(path, lambda c: c.execute("PRAGMA integrity_check").fetchone()) == ("ok",)


def test_an_index_that_is_loaded_to_be_read_is_not_changed_until_it_has_a_file_of_its_own(copied, tmp_path):
    index = load_index(copied("jax"), read_only=True)
    with pytest.raises(InputError, match="read_only=True"):
        index.remove([1])
    index.save(tmp_path / "own.db")
    assert index.path == tmp_path / "own.db"


ODD = {
    "fewer": lambda x: x[:-1],
    "more": lambda x: np.concatenate([x, x]),
    "cut": lambda x: x[..., :-1] if x.shape[-1] > 1 else x[1:],
    "flat": lambda x: x.reshape(-1, *[1] * x.ndim),
    "of another type": lambda x: x.astype(np.int16),
    "missing": None,
}
BEYOND = {"beyond": lambda x: x + 1, "below zero": lambda x: x - 1, "far beyond": lambda x: x + np.int32(2**30)}
NAN = {"not finite": lambda x: np.concatenate([x[..., :1] * np.nan, x[..., 1:]], axis=-1)}


def changed_array(connection, name, change):
    pages = Pages(connection, name)
    if change is None:
        connection.execute("DELETE FROM arrays WHERE name = ?", [name])
    else:
        pages.write(np.ascontiguousarray(change(pages.read())))


@pytest.mark.parametrize("kind", slow_but(KINDS, "faiss-flat whitened", "faiss-ivf"))
def test_arrays_and_tensors_that_do_not_fit_are_refused(kind, copied):
    path = copied(kind)
    tensors = list(load_index(path).store.coding.tensors)
    work = []
    for name in load_index(path).store.arrays:
        changes = {
            what: change
            for what, change in ODD.items()
            if len(load_index(path).store.arrays) > 1 or what not in ("fewer", "more")
        }
        work += [(name, what, change) for what, change in changes.items()]
        if name == "lists":
            work += [(name, what, change) for what, change in BEYOND.items()]
    for name in tensors:
        work += [(name, what, change) for what, change in (ODD | NAN).items()]
    accepted = []
    for name, what, how in work:
        path = copied(kind)
        edit(path, lambda c, name=name, how=how: changed_array(c, name, how))
        try:
            found(path)
            accepted.append((name, what))
        except FormatError:
            pass
    assert accepted == []


@pytest.mark.parametrize("kind", ["jax", "faiss-ivf"])
def test_a_flipped_byte_is_reported_with_its_page(kind, copied):
    path = copied(kind)
    pages = edit(path, lambda c: c.execute("SELECT name, number FROM pages").fetchall())
    store = load_index(path).store
    assert {name for name, _ in pages} == {*store.arrays, *store.coding.tensors}
    for name, number in pages:
        path = copied(kind)
        flipped = "CAST(substr(data, 1, 9) || x'a7' || substr(data, 11) AS BLOB)"
        statement = f"UPDATE pages SET data = {flipped} WHERE (name, number) = (?, ?)"
        edit(path, lambda c, values=(statement, (name, number)): c.execute(*values))
        with pytest.raises(FormatError, match=f"page {number} of {name}"):
            load_index(path)
    path = copied(kind)
    edit(path, lambda c: c.execute("UPDATE header SET value = replace(value, 'f00', 'f01')"))
    with pytest.raises(FormatError, match="checksum"):
        load_index(path)


# What another index could say of the same files.
OTHERS = {
    ("rescore",): [None],
    ("normalize",): [False],
    ("id_type",): ["", "abc", "../x", "é" * 5000],
    ("has_texts",): [False],
    ("names",): [[]],
    ("codes", "length"): [0.5, 1, True, 7, 2**31, 10**30, 1e308],  # by which a scan stretches queries
}


def entries(header, depth=2):
    """The paths of all entries."""
    for name, value in header.items():
        if name != "checksum":
            yield (name,)
            if isinstance(value, dict) and depth:
                yield from ((name, *rest) for rest in entries(value, depth - 1))


def changed(header, path, value):
    header = copy.deepcopy(header)
    place = header
    for name in path[:-1]:
        place = place[name]
    place.pop(path[-1], None)
    if value is not MISSING:
        place[path[-1]] = value
    return header


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_with_every_wrong_value(kind, copied):
    path = copied(kind)
    scores, ids = found(path)
    header, refused, cases = header_of(path), 0, 0
    paths = [*entries(header), ("more",), ("space", "engine"), ("options", "seed")]
    for place, where in enumerate(paths):
        for value in WRONG[(place + list(KINDS).index(kind)) % 3 :: 3]:  # in some kind of index each
            if value in OTHERS.get(where, ()):
                continue
            cases += 1
            put_header(path, changed(header, where, value))
            try:
                got = found(path)
            except FormatError:
                refused += 1
                continue
            np.testing.assert_allclose(got[0], scores, rtol=1e-6, err_msg=f"{where}: {value!r:.80}")
            np.testing.assert_array_equal(got[1], ids)
    assert 0.5 * cases < refused < cases


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("jax", {"codes": {"name": "spectrum", "bytes": 8}}),
        ("faiss-flat", {"codes": {"name": 5}}),
        ("faiss-flat", {"backend": "faiss-iwf", "options": {}}),
        ("faiss-flat", {"backend": "faiss-ivf", "options": {}}),
        ("faiss-flat codes", {"codes": None}),
        ("faiss-flat codes", {"backend": "faiss-ivf", "options": {"nlist": 4, "nprobe": 4}}),
        ("faiss-ivf", {"options": {"nlist": 5, "nprobe": 4}}),
        ("jax codes", {"rescore": "float64"}),
        ("jax", {"build_seconds": None}),
        ("jax", {"space": {}}),
    ],
)
def test_one_index_said_to_be_another(kind, change, copied, capsys):
    path = copied(kind)
    put_header(path, header_of(path) | change)
    with pytest.raises(FormatError):
        load_index(path)
    assert cli.main(["verify", str(path)]) == 1
    assert f"FAIL {path}" in capsys.readouterr().out


def test_backends_read_each_other(copied):
    """The codes of a flat scan are those of JAX: the header alone decides who searches them."""
    pytest.importorskip("faiss")
    for kind, other in (("faiss-flat codes", "jax"), ("jax codes", "faiss-flat")):
        path = copied(kind)
        expected = found(path)
        put_header(path, header_of(path) | {"backend": other})
        np.testing.assert_allclose(found(path)[0], expected[0], atol=1e-5)


def test_what_is_no_index_is_refused_and_not_replaced(copied, tmp_path):
    index = load_index(copied("jax"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "thesis.txt").write_text("years of work " * 9)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    newer = shutil.copy(copied("jax"), tmp_path / "newer.db")
    edit(newer, lambda c: c.execute("PRAGMA user_version = 2"))
    for name, reason in (("folder", "is a folder"), ("newer.db", "version 2")):
        with pytest.raises(FormatError, match=reason):
            load_index(tmp_path / name)
    for name, reason in (("folder", "is a folder"), ("thesis.txt", "another kind"), ("other.db", "another kind")):
        with pytest.raises(InputError, match=reason):
            index.save(tmp_path / name)
    assert (tmp_path / "thesis.txt").read_text().startswith("years")


def test_an_index_that_replaces_another_is_noticed(copied, tmp_path):
    first = load_index(copied("jax"))
    build_index(VECTORS[:9], "jax").save(tmp_path / "docs.db")
    with pytest.raises(MismatchError, match="load it again"):
        first.search(VECTORS[:1], 1)
    with pytest.raises(MismatchError, match="was replaced"):
        first.add(VECTORS[:1], documents=["x"])
    assert load_index(tmp_path / "docs.db").size == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.db"]
