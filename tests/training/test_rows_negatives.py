"""Mined negatives against a plain search."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.datasets import Examples
from jaxwhiten.errors import DataError
from jaxwhiten.training.rows import mine_negatives, with_negatives


class Angles(Encoder):
    """Texts are angles in degrees: near in number, near as vectors."""

    def __init__(self):
        pass

    def encode(self, texts):
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_negatives_are_near_and_not_linked_by_a_chain():
    first, second = ["0", "0", "90", "3"], ["1", "2", "91", "2"]  # 0-1, 0-2-3: one chain
    found = mine_negatives(Angles(), [*first, "170"], [*second, "171"], count=1, depth=1)
    assert dict(zip(*found, strict=True)) == {"0": "91", "3": "91", "90": "171", "170": "91"}
    owners, negatives = mine_negatives(Angles(), first, second, count=5, depth=5)
    assert sorted(zip(owners, negatives, strict=True)) == [("0", "91"), ("3", "91"), ("90", "1"), ("90", "2")]


def test_pairs_that_a_chain_links_have_no_negatives():
    pairs = Examples({"anchor": ["0", "1"], "positive": ["1", "2"]})
    with pytest.raises(DataError, match="negative"):
        with_negatives(pairs, [], [])
