"""`jaxwhiten apply`: the whitening of the library on a memory-mapped file, in blocks."""

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.commands import encode


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(101, 32)).astype(np.float32)


def test_blocks_give_what_the_whole_gives(run, whitening_file, vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "_BLOCK_BYTES", 10 * 32 * 4)
    np.save(tmp_path / "v.npy", vectors)
    done = run("apply", whitening_file, tmp_path / "v.npy", "--output", tmp_path / "out.npy")
    assert (done.code, done.err) == (0, "")
    out = np.load(tmp_path / "out.npy")
    assert out.shape == (101, 16)
    np.testing.assert_allclose(out, Whitening.load(whitening_file).transform(vectors), atol=1e-5)
