"""The un-tuned encoder that ships with the package: whole, small, found by name offline, and better when whitened."""

import numpy as np
import pytest

from eval.aggregates import sts_scores
from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import ModelError
from jaxwhiten.models import folders, resolve_folder
from jaxwhiten.whitening.whitening import WhiteningWarning

NAME = "jaxwhiten-tiny"


def test_damaged_weights_are_refused(monkeypatch):
    module, inner, _ = folders._PACKAGED[NAME]
    monkeypatch.setitem(folders._PACKAGED, NAME, (module, inner, "0" * 64))
    with pytest.raises(ModelError, match="sha256"):
        resolve_folder(NAME)


def test_whitening_raises_the_score_of_the_sample():
    pairs = load_sts("sts_sample").splits["test"]
    encoder = Encoder.from_pretrained(NAME, pooling="first_last_avg")
    x = encoder.encode([*pairs.sentence1, *pairs.sentence2])
    with pytest.warns(WhiteningWarning, match="780 rows"):
        whitened = normalize(Whitening(n_components=128).fit(x).transform(x))

    def score(vectors):
        similarity = np.sum(normalize(vectors[: len(pairs)]) * normalize(vectors[len(pairs) :]), axis=1)
        return sts_scores(similarity, pairs.score, pairs.subset)["wmean"]

    assert score(whitened) > score(x) + 1
