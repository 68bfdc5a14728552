"""Ways from one encoder to another, on plain vectors."""

import numpy as np

from eval import upgrade
from jaxwhiten import normalize


def side(seed, documents=60, queries=9):
    rng = np.random.default_rng(seed)
    vectors = [normalize(rng.normal(size=(rows, 8)).astype(np.float32)) for rows in (documents, queries)]
    return upgrade.Side(str(seed), "mean", False, None, *vectors)


def test_on_read_orders_the_old_encoders_documents_by_the_new_one():
    old, new = side(0), side(1)
    first = upgrade.ranked(old.queries @ old.documents.T, 20)
    scores = new.queries @ new.documents.T
    for found, ids, score in zip(upgrade.reranked(first, new), first, scores, strict=True):
        assert found.tolist() == sorted(ids, key=lambda id: -score[id])[: upgrade.FIRST]
    everything = upgrade.ranked(old.queries @ old.documents.T, 60)
    np.testing.assert_array_equal(upgrade.reranked(everything, new), upgrade.ranked(scores, upgrade.FIRST))
