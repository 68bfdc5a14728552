"""Damages of the files of an index of codes, behind checksums that were mended: each ends in a FormatError."""

import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.errors import FormatError
from jaxwhiten.io import load_tensors, save_tensors, seal, sha256_file
from jaxwhiten.search import build_index, load_index
from jaxwhiten.search.prepare import KIND

N, D = 200, 16
VECTORS = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
KINDS = {
    "jax": {"bytes": 6},
    "jax ubinary": {"codes": "ubinary"},
    "faiss-flat": {"bytes": 6},
    "faiss-flat int8": {"codes": "int8"},
    "faiss-flat whitened": {"bytes": 6, "whitening": Whitening(14).fit(VECTORS)},
    "faiss-ivf": {"bytes": 6, "nlist": 4, "nprobe": 2},
}
CODES, LISTS, TRANSFORM = "codes.npy", "lists.npy", "transform.safetensors"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    for kind, options in KINDS.items():
        if kind.startswith("faiss"):
            pytest.importorskip("faiss")
        build_index(VECTORS, kind.split()[0], **options).save(root / kind)
    return root


def mended(folder, name, change):
    """Changes one file of an index, or leaves it out, and mends size and checksums in the header."""
    header = json.loads((folder / "header.json").read_text())
    path = folder / header["files"][name]["name"]
    if change is None:
        del header["files"][name]
    else:
        change(path)
        header["files"][name] |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    (folder / "header.json").write_text(json.dumps(seal(header)))


def of_rows(name, change):
    return name, lambda path: np.save(path, change(np.load(path)))


def of_tensor(name, change):
    def write(path):
        tensors = {key: np.array(value) for key, value in load_tensors(path, kind=KIND)[0].items()}
        tensors[name] = None if change is None else change(tensors[name])
        kept = {key: np.ascontiguousarray(value) for key, value in tensors.items() if value is not None}
        save_tensors(path, kept, kind=KIND, header={})

    return TRANSFORM, write


def with_nan(x):
    x[..., 0] = np.nan
    return x


ODD = {
    "fewer": lambda x: x[:-1],
    "more": lambda x: np.concatenate([x, x]),
    "cut": lambda x: x[..., :-1],
    "flat": lambda x: x.reshape(-1, *[1] * x.ndim),
    "of another type": lambda x: x.astype(np.int16),
    "missing": None,
}


def row_damages(file):
    return {
        "missing": (file, None),
        "no numbers": (file, lambda path: path.write_bytes(b"codes")),
        "objects": (file, lambda path: np.save(path, np.array([{}]), allow_pickle=True)),
        **{name: of_rows(file, change) for name, change in ODD.items() if change is not None},
    }


QUANTISER = ["centroids", "mean", "rotation", "offset"]
TENSORS = {
    "jax": QUANTISER,
    "jax ubinary": ["centroids"],
    "faiss-flat": QUANTISER,
    "faiss-flat int8": ["centroids"],
    "faiss-flat whitened": [*QUANTISER, "shift", "weight", "bias"],
    "faiss-ivf": [*QUANTISER, "centers"],
}
BEYOND = {
    "list beyond": of_rows(LISTS, lambda x: x + 1),
    "list below zero": of_rows(LISTS, lambda x: x - 1),
    "list far beyond": of_rows(LISTS, lambda x: x + np.int32(2**30)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused(folders, kind, tmp_path):
    index = load_index(folders / kind)
    assert index.search(VECTORS[:3], 3)[0].shape == (3, 3)
    damages = {f"codes {name}": damage for name, damage in row_damages(CODES).items()}
    damages["no transform"] = TRANSFORM, None
    for tensor in TENSORS[kind]:
        damages |= {f"{tensor} {name}": of_tensor(tensor, change) for name, change in ODD.items()}
        damages[f"{tensor} not finite"] = of_tensor(tensor, with_nan)
    if kind == "faiss-ivf":
        damages |= BEYOND | {f"lists {name}": damage for name, damage in row_damages(LISTS).items()}
    accepted = []
    for number, (name, damage) in enumerate(damages.items()):
        folder = shutil.copytree(folders / kind, tmp_path / str(number))
        mended(folder, *damage)
        try:
            load_index(folder).search(VECTORS[:3], 3)
            accepted.append(name)
        except FormatError:
            pass
        shutil.rmtree(folder)
    assert accepted == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("faiss-flat", {"coordinates": 11}),
        ("faiss-flat", {"coordinates": 0}),
        ("faiss-flat", {"coordinates": "12"}),
        ("faiss-flat", {"bytes": 5}),
        ("jax", {"bytes": 7}),
        ("jax", {"length": 0.0}),
        ("faiss-ivf", {"bytes": 12}),
    ],
)
def test_a_header_that_contradicts_the_codes_is_refused(folders, kind, change, tmp_path):
    folder = shutil.copytree(folders / kind, tmp_path / "index")
    header = json.loads((folder / "header.json").read_text())
    header["codes"] |= change
    (folder / "header.json").write_text(json.dumps(seal(header)))
    with pytest.raises(FormatError):
        load_index(folder)


@pytest.mark.parametrize("codes", [{"bytes": 6}, {"codes": "int8"}, {"codes": "ubinary"}])
def test_backends_read_each_other(codes, tmp_path):
    """The codes of a flat scan are those of JAX: the header alone decides who searches them."""
    pytest.importorskip("faiss")
    for backend, other in (("faiss-flat", "jax"), ("jax", "faiss-flat")):
        index = build_index(VECTORS, backend, **codes)
        index.save(tmp_path / backend)
        assert {name for name in json.loads((tmp_path / backend / "header.json").read_text())["files"]} >= {CODES}
        expected = load_index(tmp_path / backend).search(VECTORS[:9], 5)
        file = tmp_path / backend / "header.json"
        options = {"approximate": False, "recall_target": 0.95} if other == "jax" else {}
        file.write_text(json.dumps(seal(json.loads(file.read_text()) | {"backend": other, "options": options})))
        np.testing.assert_allclose(load_index(tmp_path / backend).search(VECTORS[:9], 5)[0], expected[0], atol=1e-5)
