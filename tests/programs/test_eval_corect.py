"""`python -m eval.corect`: CoRECT's methods give the bytes and the order that they should."""

import numpy as np
import pytest

from eval import corect
from jaxwhiten import metrics, normalize


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    documents = normalize(rng.normal(size=(400, 32)) * np.linspace(2, 0.5, 32) + 0.1).astype(np.float32)
    queries = normalize(documents[:50] + 0.05 * rng.normal(size=(50, 32))).astype(np.float32)
    corect.BYTES = (8, 16)
    gold = metrics.Gold(np.arange(51), np.arange(50))
    return {row.method: row for row in corect.scored(documents, queries, gold) if row.method != "spectrum"}


def test_more_bits_find_more_of_float32(rows):
    assert rows["float32"].recall == 1
    assert rows["bfloat16"].recall > 0.95
    for kind in ("equal distance", "percentile"):
        recalls = [rows[f"{kind}, {bits} bits"].recall for bits in (2, 4, 8)]
        assert recalls == sorted(recalls)
        assert recalls[0] < recalls[2]
    assert rows["float8_e4m3fn"].recall > rows["float8_e5m2"].recall > rows["binary, zero"].recall


def test_bins_are_those_of_the_documents():
    documents = np.arange(8.0)[:, None]
    assert corect.percentile(documents, 2)(np.array([[0.0], [3.0], [9.0]])).ravel().tolist() == [0, 1, 3]
    compress = corect.equal_distance(np.linspace(0, 1, 101)[:, None], 2)
    assert compress(np.array([[-9.0], [0.5], [9.0]])).ravel().tolist() == [-2, -1, 1]
