"""Weights from strangers: safetensors, their sharded index, and Flax msgpack. A state, or a ModelError."""

import json
import shutil
import struct

import numpy as np
import pytest
from flax import traverse_util
from hypothesis import example, given
from hypothesis import strategies as st

from jaxwhiten.errors import ModelError
from jaxwhiten.models import checkpoint, folders, loading
from jaxwhiten.models.folders import FAMILIES
from tests.fuzz.common import ODD, attempt, damaged, fuzz, json_text
from tests.tiny import write_model

DTYPES = ["F32", "F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "F4", "F8_E8M0", "X", ""]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder whose weights are damaged over and over, their bytes, and the shapes that config.json asks for."""
    folder = write_model(tmp_path_factory.mktemp("weights") / "model", hidden_size=8, intermediate_size=8, num_layers=1)
    shapes = checkpoint.shapes_of(loading.abstract(folders.load_config(folder), "float32", False)[1])
    return folder, (folder / "model.safetensors").read_bytes(), shapes


def load(folder, shapes):
    return checkpoint.load_parameters(folder, FAMILIES["bert"], shapes)


def check(folder, shapes, file):
    """The property: finite float32 arrays of the model's shapes, or an error that names the file."""
    values, _ = attempt(lambda: load(folder, shapes), names=file)
    if values is None:
        return
    for path, array in values.items():
        assert array.dtype == np.float32
        assert array.shape == shapes[path]
        assert np.isfinite(array).all()


def pack(header, body, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def unpack(data):
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


@fuzz()
@given(data=st.data())
def test_damaged_bytes(model, data):
    folder, whole, shapes = model
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    part = data.draw(st.sampled_from([whole[:header], whole]))
    broken = data.draw(damaged(part)) + (whole[header:] if len(part) == header else b"")
    (folder / "model.safetensors").write_bytes(broken)
    check(folder, shapes, "model.safetensors")


@pytest.mark.slow
@fuzz()
@given(data=st.data())
def test_damaged_header(model, data):
    """Entries with other types, shapes and offsets: overlapping, beyond the end, negative, absurd."""
    folder, whole, shapes = model
    header, body = unpack(whole)
    names = [name for name in header if name != "__metadata__"]
    for _ in range(data.draw(st.integers(1, 3))):
        entry = header[data.draw(st.sampled_from(names))]
        if not isinstance(entry, dict):
            continue
        key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        number = st.sampled_from([0, 1, 8, 64, 2**31, 2**40, 2**63, 2**64, -1, len(body), len(body) - 4])
        new = {
            "dtype": st.sampled_from(DTYPES),
            "shape": st.lists(number, max_size=4),
            "data_offsets": st.lists(number, min_size=2, max_size=2),
        }[key]
        entry[key] = data.draw(new | ODD)
    if data.draw(st.booleans()):
        other = data.draw(st.sampled_from(names))
        header[data.draw(st.sampled_from([*names, "x", "\0", "__metadata__"]))] = header[other]
    size = data.draw(st.sampled_from([None, None, None, 0, 2**20, 2**40, 2**63, 2**64 - 1]))
    (folder / "model.safetensors").write_bytes(pack(header, body, size))
    check(folder, shapes, "model.safetensors")


@fuzz(0.2)
@given(dtype=st.sampled_from(DTYPES), content=st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x01", b"\x80"]))
def test_every_dtype_of_the_format(model, dtype, content):
    """One tensor in another type, the file whole: read as numbers, or refused as not of floating point."""
    folder, whole, shapes = model
    header, body = unpack(whole)
    bits = {"F64": 64, "I64": 64, "C64": 64, "F16": 16, "BF16": 16, "F32": 32, "F4": 4}.get(dtype, 8)
    name = "embeddings.LayerNorm.weight"
    entry, end = header[name], len(body)
    size = entry["shape"][0] * bits // 8
    start, stop = entry["data_offsets"]
    body = body[:start] + body[stop:]
    for other in header.values():
        if "data_offsets" in other and other["data_offsets"][0] >= stop:
            other["data_offsets"] = [place - (stop - start) for place in other["data_offsets"]]
    end = len(body)
    entry |= {"dtype": dtype, "data_offsets": [end, end + size]}
    (folder / "model.safetensors").write_bytes(pack(header, body + content * size))
    check(folder, shapes, "model.safetensors")


@fuzz(0.5)
@given(data=st.data())
def test_damaged_index_of_shards(model, tmp_path_factory, data):
    _, whole, shapes = model
    place = tmp_path_factory.getbasetemp() / "sharded"
    place.mkdir(exist_ok=True)
    (place / "a.safetensors").write_bytes(whole)
    index = {"metadata": {"total_size": len(whole)}, "weight_map": dict.fromkeys(unpack(whole)[0], "a.safetensors")}
    (place / "model.safetensors.index.json").write_bytes(data.draw(json_text(index)))
    check(place, shapes, str(place))


@pytest.mark.parametrize("name", [5, "a\0b", "", "..", "../model.safetensors", "/etc/passwd"])
def test_shards_that_are_no_file_names(model, tmp_path, name):
    shapes = model[2]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(ModelError, match="shard"):
        load(tmp_path, shapes)


@fuzz()
@given(data=st.data())
def test_damaged_msgpack(model, tmp_path_factory, data):
    from flax.serialization import msgpack_serialize

    _, whole, shapes = model
    place = tmp_path_factory.getbasetemp() / "msgpack"
    place.mkdir(exist_ok=True)
    header, body = unpack(whole)
    flat = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        array = np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        stem, _, leaf = name.rpartition(".")
        if leaf == "weight":
            leaf = "scale" if array.ndim == 1 else "embedding" if "embeddings" in stem else "kernel"
        flat[f"{stem}.{leaf}"] = array.T if leaf == "kernel" else array
    tree = traverse_util.unflatten_dict(flat, sep=".")
    if not (place / "whole").exists():
        (place / "flax_model.msgpack").write_bytes(msgpack_serialize(tree))
        assert load(place, shapes) is not None
        shutil.copy(place / "flax_model.msgpack", place / "whole")
    (place / "flax_model.msgpack").write_bytes(data.draw(damaged((place / "whole").read_bytes())))
    check(place, shapes, str(place))


@fuzz()
@given(st.binary(max_size=300))
@example(b"")
@example(struct.pack("<Q", 2**63) + b"{}")
@example(struct.pack("<Q", 100_000_001) + b"{}")
@example(pack(b"[" * 100_000, b""))
@example(pack({"__metadata__": {"a": 1}}, b""))
@example(b"\x80\x04\x95")  # a pickle
@example(b"PK\x03\x04")
def test_any_bytes(model, content):
    folder, _, shapes = model
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(folder, shapes)
