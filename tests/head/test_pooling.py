"""Each pooling against a plain loop over sentences and tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.head import Head, canonical, run
from jaxwhiten.models import EncoderOutput
from jaxwhiten.models.positions import Segments
from tests.tiny import ALONE, tiny_config

LENGTHS = (5, 1, 7)
RNG = np.random.default_rng(0)
HIDDEN = [RNG.normal(size=(3, 7, 4)).astype(np.float32) for _ in range(4)]
MASK = (np.arange(7) < np.array(LENGTHS)[:, None]).astype(np.int32)
POOLER = RNG.normal(size=(3, 4)).astype(np.float32)


def mean(*layers):
    return lambda b, n: np.mean([HIDDEN[layer][b, :n].mean(0) for layer in layers], axis=0)


LAST = HIDDEN[-1]
BY_HAND = {
    "cls": lambda b, n: LAST[b, 0],
    "mean": mean(3),
    "max": lambda b, n: LAST[b, :n].max(0),
    "first_last_avg": mean(1, 3),
    "embeddings_last_avg": mean(0, 3),
    "last2avg": mean(2, 3),
    "pooler": lambda b, n: POOLER[b],
    "mean_sqrt_len_tokens": lambda b, n: LAST[b, :n].sum(0) / np.sqrt(n),
    "weightedmean": lambda b, n: np.average(LAST[b, :n], axis=0, weights=np.arange(1, n + 1)),
    "lasttoken": lambda b, n: LAST[b, n - 1],
    "layers:1+3": mean(1, 3),
    "layers:0, -1": mean(0, 3),
    "layers:2": mean(2),
    "layers:0,1,2,3": mean(0, 1, 2, 3),
}


@pytest.mark.parametrize("name", {**BY_HAND, **dict.fromkeys(ALONE)})
def test_pooling_equals_a_plain_loop_whatever_the_padding_and_the_layout(name):
    expected = np.stack([BY_HAND[name](b, n) for b, n in enumerate(LENGTHS)])
    poisoned = [np.where(MASK[:, :, None] > 0, h, 1e6).astype(np.float32) for h in HIDDEN]
    head = Head.named(name)
    for hidden in (HIDDEN, poisoned):
        got = run(head.steps, EncoderOutput(tuple(map(jnp.asarray, hidden)), jnp.asarray(POOLER)), jnp.asarray(MASK))
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert head.by_segment
    # The three sentences in one row.
    row = tuple(jnp.concatenate([h[b, :n] for b, n in enumerate(LENGTHS)])[None] for h in HIDDEN)
    segments = Segments.of(jnp.array([LENGTHS]), sum(LENGTHS))
    got = run(head.steps, EncoderOutput(row, jnp.asarray(POOLER)[None]), jnp.ones((1, 13), jnp.int32), None, segments)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "known"),
    [("last_avg", "mean"), ("layers: 1 , 6", "layers:1+6"), ("auto", "auto"), ("auto:last_avg", "auto:mean")],
)
def test_names_have_one_form(name, known):
    assert canonical(name) == canonical(known) == known


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(("first_last", "'first_last_avg'"), ("layers", "layers:1"), ("layers:", "expected layers")),
        *(("layers:1,x", "expected layers"), ("mean:3", "Unknown pooling"), ("layer:1,2", "layers")),
    ],
)
def test_names_that_say_too_little_are_answered(name, words):
    with pytest.raises(InputError, match=words):
        canonical(name)


def test_layers_the_model_has_not():
    for name in ("layers:0,4", "layers:-5"):
        with pytest.raises(InputError, match="0 to 3"):
            Head.named(name).width(tiny_config(num_layers=3))
    Head.named("layers:3,-4").width(tiny_config(num_layers=3))
