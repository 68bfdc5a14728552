"""Whether an encoder is tuned for similarity."""

import pytest

from jaxwhiten import Encoder, load_sts
from jaxwhiten.encoding import is_tuned, shipped_isoscore


def test_an_encoder_s_kind_is_told_by_the_sentences_that_ship():
    untuned = Encoder.from_pretrained("jaxwhiten-tiny", pooling="first_last_avg")
    assert shipped_isoscore(untuned) == pytest.approx(0.038, abs=0.002)
    assert not is_tuned(untuned)
    assert not is_tuned(untuned.whiten(load_sts("sts_sample").splits["test"].sentence1, k=30))


@pytest.mark.parametrize(("pooling", "tuned"), [("mean", True), ("cls", True), ("layers:1", False)])
def test_layers_that_were_not_tuned_are_told_from_those_that_were(minilm, pooling, tuned):
    assert is_tuned(Encoder.from_pretrained(minilm, pooling=pooling)) == tuned
