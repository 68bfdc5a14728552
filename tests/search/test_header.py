"""Headers that a stranger wrote, sealed as they should be: every entry, with every kind of wrong value."""

import copy
import json
import os
import shutil
import warnings

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.errors import FormatError, JaxwhitenError
from jaxwhiten.io import seal
from jaxwhiten.search import build_index, load_index
from tests.tiny import SENTENCES

VECTORS = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
ENCODING = {"model": "m", "fingerprint": "f00", "pooling": "mean", "max_length": 64, "mine": 3}
KINDS = {
    "jax": {},
    "faiss-flat": {},
    "jax codes": {"codes": "spectrum", "bytes": 8, "rescore": "float16"},
    "faiss-flat codes": {"codes": "spectrum", "bytes": 8, "rescore": "int8"},
    "faiss-ivf codes": {"codes": "spectrum", "bytes": 8, "nlist": 4, "nprobe": 4},
}
MISSING = object()
WRONG = [MISSING, None, True, 0, -1, 7, 2**31, 10**30, 10**400, 0.5, float("nan"), float("inf"), 1e308]
WRONG += ["", "abc", "../x", "a\0b", "\ud800", "é" * 5000, [], [1], [None], {}, {"name": 5}, {"a": {"b": []}}]


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    for kind, options in KINDS.items():
        index = build_index(
            VECTORS, kind.split()[0], documents=list(map(str, range(300))), encoding=ENCODING, **options
        )
        index.save(root / kind)
    return root


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
    return seal(header)


def found(folder):
    return load_index(folder).search(VECTORS[:1], 3)


# What another index could say of the same files.
OTHERS = {
    ("rescore",): [None],
    ("normalize",): [False],
    ("options", "approximate"): [True],
    ("codes", "length"): [0.5, 1, True, 7, 2**31, 10**30, 1e308],  # by which a scan stretches queries
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_with_every_wrong_value(folders, kind, tmp_path):
    folder = shutil.copytree(folders / kind, tmp_path / "index")
    file, (scores, ids) = folder / "header.json", found(folder)
    header, refused = json.loads(file.read_text()), 0
    paths = [*entries(header), ("more",), ("encoding", "folder"), ("encoding", "engine"), ("options", "seed")]
    number, cases = list(KINDS).index(kind), 0
    for place, path in enumerate(paths):
        for value in WRONG[(place + number) % 3 :: 3]:  # in some kind of index each
            if value in OTHERS.get(path, ()):
                continue
            cases += 1
            file.write_text(json.dumps(changed(header, path, value)))
            try:
                got = found(folder)
            except FormatError:
                refused += 1
                continue
            np.testing.assert_allclose(got[0], scores, rtol=1e-6, err_msg=f"{path}: {value!r:.80}")
            np.testing.assert_array_equal(got[1], ids)
            if isinstance(value, float) or value == "\ud800":  # what JSON or UTF-8 has not
                load_index(folder).save(tmp_path / "again")
                load_index(tmp_path / "again")
    assert 0.7 * cases < refused < cases


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("jax", {"codes": {"name": "spectrum", "bytes": 8}}),
        ("faiss-flat", {"codes": {"name": "spectrum", "bytes": 8}}),
        ("faiss-flat", {"codes": {"name": 5}}),
        ("faiss-flat", {"codes": {"name": 5, "bytes": 64}}),
        ("faiss-flat", {"backend": "faiss-iwf", "options": {}}),
        ("faiss-flat", {"backend": "faiss-ivf", "options": {}}),
        ("faiss-flat codes", {"codes": None}),
        ("faiss-flat codes", {"codes": {"name": "spectrum", "bytes": 7}}),
        ("faiss-flat codes", {"backend": "faiss-ivf", "options": {"nlist": 4, "nprobe": 4}}),
        ("faiss-ivf codes", {"backend": "faiss-flat"}),
        ("faiss-ivf codes", {"options": {"nlist": 5, "nprobe": 4}}),
        ("jax codes", {"rescore": "float64"}),
        ("jax", {"size": 299}),
        ("jax", {"build_seconds": None}),
        ("jax", {"encoding": {}}),
    ],
)
def test_one_index_said_to_be_another(folders, kind, change, tmp_path, capsys):
    folder = shutil.copytree(folders / kind, tmp_path / "index")
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(seal(header | change)))
    with pytest.raises(FormatError):
        load_index(folder)
    assert cli.main(["verify", str(folder)]) == 1
    assert f"FAIL {folder}" in capsys.readouterr().out


def test_a_header_that_was_changed_after_it_was_written(folders, tmp_path):
    file = shutil.copytree(folders / "jax", tmp_path / "index") / "header.json"
    header = json.loads(file.read_text())
    file.write_text(json.dumps(header | {"build_seconds": header["build_seconds"] + 1}))
    with pytest.raises(FormatError, match="checksum does not match"):
        load_index(file.parent)


def test_what_would_not_be_read_is_not_written(tmp_path):
    index = build_index(VECTORS, "jax", encoding={"model": "m"})
    with pytest.raises(FormatError, match="encoding: fingerprint: missing"):
        index.save(tmp_path / "index")
    assert [file.name for file in (tmp_path / "index").iterdir() if file.name != ".lock"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry", ["model", "folder", "fingerprint", "pooling", "max_length", "dtype", "engine", "prompt"]
)
def test_a_search_by_a_strange_encoding_is_answered_or_refused(entry, tiny_model, tmp_path, capsys):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=16)
    folder = tmp_path / "index"
    index = build_index(encoder.encode(SENTENCES[:3]), "jax", encoding=encoder.encoding(), documents=SENTENCES[:3])
    index.save(folder)
    header = json.loads((folder / "header.json").read_text())
    for value in [MISSING, None, 0, 7, 10**30, "", "abc", "../x", "a\0b", "\ud800", "é" * 5000, [], {}]:
        (folder / "header.json").write_text(json.dumps(changed(header, ("encoding", entry), value)))
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
            patch.setenv("HF_HUB_OFFLINE", "1")
            code = cli.main(["search", str(folder), "a guitar"])
        err = capsys.readouterr().err
        assert (code, err) == (0, "") or (code in (1, 2) and err.startswith("error: ") and err.count("\n") == 1), value


def test_links_that_leave_the_folder_are_refused(folders, tmp_path):
    for file in sorted((folders / "jax codes").iterdir()):
        folder = shutil.copytree(folders / "jax codes", tmp_path / file.name / "index")
        place = folder / file.name
        place.rename(tmp_path / file.name / "elsewhere")
        place.symlink_to("../elsewhere")
        if file.name == ".lock":
            continue
        with pytest.raises(FormatError, match="a link that leaves the folder"):
            load_index(folder)
        place.unlink()
        (folder / "kept").mkdir()
        (tmp_path / file.name / "elsewhere").rename(folder / "kept" / "here")
        place.symlink_to("kept/here")
        assert load_index(folder).size == 300


@pytest.mark.parametrize("name", ["../whole", "/etc/passwd", "..", ".", "", "a/../../x", "a\\..\\x", "a\nb", 5])
def test_names_that_leave_the_folder_are_refused(folders, tmp_path, name):
    folder = shutil.copytree(folders / "jax", tmp_path / "index")
    header = json.loads((folder / "header.json").read_text())
    role = sorted(header["files"])[0]
    (folder / "header.json").write_text(json.dumps(changed(header, ("files", role, "name"), name)))
    with pytest.raises(JaxwhitenError, match=r"not a valid file|expected text"):
        load_index(folder)
