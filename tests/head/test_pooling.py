"""Each pooling against a plain loop over sentences and tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.head import Head, canonical, run
from jaxwhiten.models import EncoderOutput
from tests.tiny import ALONE, tiny_config

LENGTHS = (5, 1, 7)


@pytest.fixture
def states():
    rng = np.random.default_rng(0)
    hidden = [rng.normal(size=(3, 7, 4)).astype(np.float32) for _ in range(4)]
    mask = (np.arange(7) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return hidden, mask, rng.normal(size=(3, 4)).astype(np.float32)


def by_hand(name, hidden, pooler):
    last = hidden[-1]
    one = {
        "cls": lambda b, n: last[b, 0],
        "mean": lambda b, n: last[b, :n].mean(0),
        "max": lambda b, n: last[b, :n].max(0),
        "first_last_avg": lambda b, n: (hidden[1][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "embeddings_last_avg": lambda b, n: (hidden[0][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "last2avg": lambda b, n: (hidden[-2][b, :n].mean(0) + last[b, :n].mean(0)) / 2,
        "pooler": lambda b, n: pooler[b],
        "mean_sqrt_len_tokens": lambda b, n: last[b, :n].sum(0) / np.sqrt(n),
        "weightedmean": lambda b, n: np.average(last[b, :n], axis=0, weights=np.arange(1, n + 1)),
        "lasttoken": lambda b, n: last[b, n - 1],
    }[name]
    return np.stack([one(b, n) for b, n in enumerate(LENGTHS)])


@pytest.mark.parametrize("name", sorted(ALONE))
def test_pooling_equals_a_plain_loop(states, name):
    hidden, mask, pooler = states
    output = EncoderOutput(tuple(map(jnp.asarray, hidden)), jnp.asarray(pooler))
    got = run(Head.named(name).steps, output, jnp.asarray(mask))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, by_hand(name, hidden, pooler), atol=1e-5)


@pytest.mark.parametrize("name", sorted(ALONE))
def test_padding_changes_nothing(states, name):
    hidden, mask, pooler = states
    poisoned = [np.where(mask[:, :, None] > 0, h, 1e6).astype(np.float32) for h in hidden]
    results = [
        run(Head.named(name).steps, EncoderOutput(tuple(map(jnp.asarray, h)), jnp.asarray(pooler)), jnp.asarray(mask))
        for h in (hidden, poisoned)
    ]
    np.testing.assert_array_equal(*results)


def test_rows_hold_several_sentences_for_every_pooling_without_parameters():
    assert [name for name in sorted(ALONE) if not Head.named(name).by_segment] == []


def test_alias_and_typo():
    assert canonical("last_avg") == "mean"
    with pytest.raises(InputError, match="'first_last_avg'"):
        canonical("first_last")


@pytest.fixture
def output(states):
    hidden, mask, pooler = states
    return EncoderOutput(tuple(map(jnp.asarray, hidden)), jnp.asarray(pooler)), jnp.asarray(mask), hidden


def parametric(output, name):
    return run(Head.named(name).steps, output[0], output[1])


@pytest.mark.parametrize(
    ("name", "chosen"),
    [("layers:1+3", (1, 3)), ("layers:0, -1", (0, 3)), ("layers:2", (2,)), ("layers:0,1,2,3", (0, 1, 2, 3))],
)
def test_a_mix_of_layers_equals_a_plain_loop(output, name, chosen):
    hidden = output[2]
    expected = [np.mean([hidden[i][b, :n].mean(0) for i in chosen], axis=0) for b, n in enumerate(LENGTHS)]
    np.testing.assert_allclose(parametric(output, name), np.stack(expected), atol=1e-5)


def test_mixes_of_layers_agree_with_the_named_poolings(output):
    for mix, name in {
        "layers:1,-1": "first_last_avg",
        "layers:0,3": "embeddings_last_avg",
        "layers:-1": "mean",
    }.items():
        np.testing.assert_allclose(parametric(output, mix), parametric(output, name), atol=1e-5)


def test_padding_changes_no_mix_of_layers(output):
    _, mask, hidden = output
    poisoned = EncoderOutput(tuple(jnp.where(mask[:, :, None] > 0, h, 1e6) for h in hidden), None)
    np.testing.assert_allclose(parametric((poisoned, mask), "layers:0+2"), parametric(output, "layers:0+2"), atol=1e-5)


def test_canonical_names_of_parametric_poolings():
    assert canonical("layers: 1 , 6") == canonical("layers:1+6") == "layers:1+6"
    assert canonical("auto") == "auto"
    assert {canonical(name) for name in ("last_avg", "mean")} == {"mean"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layers", "layers:1\\+12"),
        ("layers:", "expected layers"),
        ("layers:1,x", "expected layers"),
        ("mean:3", "Unknown pooling"),
        ("layer:1,2", "layers"),
    ],
)
def test_names_that_say_too_little_are_answered(name, message):
    with pytest.raises(InputError, match=message):
        canonical(name)


@pytest.mark.parametrize("name", ["layers:0,4", "layers:-5"])
def test_layers_and_heads_the_model_has_not(name):
    with pytest.raises(InputError, match=r"this model has \w+ ?\w+s? 0 to"):
        Head.named(name).width(tiny_config(num_layers=3))
    Head.named("layers:3,-4").width(tiny_config(num_layers=3))
