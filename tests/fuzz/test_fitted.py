"""Files of moments and whitenings: every flipped bit is noticed, and what is sealed but wrong is refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten import io
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening
from tests.fuzz.common import ODD, attempt, damaged, damaged_json, fuzz

D = 4
X = np.random.default_rng(0).normal(size=(60, D)).astype(np.float32)
LOADERS = {"moments": Moments.load, "whitening": Whitening.load}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Name -> a file of every kind."""
    folder = tmp_path_factory.mktemp("saved")
    Moments().update(X).save(folder / "moments")
    Whitening(n_components=3, beta=0.5).fit(X).save(folder / "whitening", {"model": "m"})
    return {path.name: path for path in folder.iterdir()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@fuzz()
@given(data=st.data())
def test_damaged_bytes_are_refused_or_were_padding(saved, tmp_path, data):
    name = data.draw(st.sampled_from(sorted(saved)))
    whole = saved[name].read_bytes()
    path = tmp_path / "damaged"
    path.write_bytes(data.draw(damaged(whole, most=2)))
    found, _ = attempt(lambda: io.load_tensors(path, kind=name), names=str(path))
    if found is not None:  # white space of the JSON, or damage that undid itself
        tensors, header = io.load_tensors(saved[name], kind=name)
        assert same(found[0], tensors)
        assert found[1] == header


@fuzz()
@given(data=st.data())
def test_every_flipped_bit_is_noticed(saved, tmp_path, data):
    """The header, too: a β or a k that one bit has changed would be a wrong number without a word."""
    name = data.draw(st.sampled_from(["moments", "whitening"]))
    content = bytearray(saved[name].read_bytes())
    size = 8 + struct.unpack("<Q", content[:8])[0]
    place = data.draw(st.integers(0, size - 1) | st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "flipped"
    path.write_bytes(content)
    found, _ = attempt(lambda: io.load_tensors(path, kind=name), names=str(path))
    if found is not None:
        assert found[1] == io.load_tensors(saved[name], kind=name)[1]


NUMBERS = st.sampled_from([0.0, -1.0, np.nan, np.inf, -np.inf, 1e308, 1e-320, 7.0])
SHAPES = st.sampled_from([(), (0,), (1,), (D,), (D, D), (D + 1,), (D, D + 1), (1, D), (0, 0)])
TYPES = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])


@pytest.mark.slow
@fuzz()
@given(data=st.data())
def test_sealed_files_that_are_wrong(saved, tmp_path, data):
    """Written by a stranger, the checksum right: refused, or finite numbers of the right shapes."""
    name = data.draw(st.sampled_from(sorted(saved)))
    tensors, header = io.load_tensors(saved[name], kind=name)
    tensors = {key: value.copy() for key, value in tensors.items()}
    if data.draw(st.booleans()):
        given_ = {key: header[key] for key in header if key == "provenance"}
        header = data.draw(damaged_json(given_, ODD.filter(lambda value: value != "\ud800")))
    for _ in range(data.draw(st.integers(0, 2)) if tensors else 0):
        key = data.draw(st.sampled_from(sorted(tensors)))
        what = data.draw(st.sampled_from(["number", "all", "shape", "dtype", "remove", "swap"]))
        with np.errstate(all="ignore"):
            if what == "number" and tensors[key].size:
                place = data.draw(st.integers(0, tensors[key].size - 1))
                if tensors[key].dtype.kind == "f":
                    tensors[key].reshape(-1)[place] = data.draw(NUMBERS)
                else:
                    number = np.array(data.draw(st.sampled_from([0, -1, 2**62, 7])))
                    tensors[key].reshape(-1)[place] = number.astype(tensors[key].dtype)
            elif what == "all":
                tensors[key] = np.full(tensors[key].shape, data.draw(NUMBERS))
            elif what == "shape":
                tensors[key] = np.ones(data.draw(SHAPES), tensors[key].dtype)
            elif what == "dtype":
                tensors[key] = tensors[key].astype(data.draw(TYPES))
            elif what == "swap":
                tensors[key] = tensors[data.draw(st.sampled_from(sorted(tensors)))]
            elif len(tensors) > 1:
                del tensors[key]
    header = {key: header[key] for key in header if key == "provenance"} if isinstance(header, dict) else {}
    path = tmp_path / f"sealed-{name}"
    io.save_tensors(path, tensors, kind=name, header=header)
    found, _ = attempt(lambda: LOADERS[name](path), names=str(path))
    if isinstance(found, Moments):
        assert found.n >= 0
        assert found.M2.shape == (len(found.mean),) * 2
        assert np.isfinite(found.M2).all()
    elif isinstance(found, Whitening):
        with np.errstate(all="ignore"):
            W, bias = found.kernel
        assert W.shape == (D, len(bias))
