"""Sentence batches through encoder and loss: parity with sentence-transformers, prompts, dropout, cached tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, training
from jaxwhiten.errors import InputError
from jaxwhiten.head import AfterPrompt, Dense, Head, Mean, Normalize
from jaxwhiten.head.pooling import Cls, LastToken, Max
from jaxwhiten.models import load_model, save_model
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training.objectives import OBJECTIVES, make_plan
from jaxwhiten.training.sentences import sentence_loss, split_encoder, tokenize_columns
from tests.conftest import slow_but
from tests.tiny import SENTENCES, write_model
from tests.training.setups import setup_for

pytestmark = pytest.mark.usefixtures("fresh_cache")
WORDS = " ".join(SENTENCES).split()
# The kind of labels that an objective takes, the columns, and sentence-transformers' loss.
CASES = {
    "softmax": ("class", 2, lambda losses, model: losses.SoftmaxLoss(model, model.get_embedding_dimension(), 3)),
    "cosine": ("score", 2, lambda losses, model: losses.CosineSimilarityLoss(model)),
    "triplet": (None, 3, lambda losses, model: losses.TripletLoss(model, triplet_margin=1.0)),
    "mnr": (None, 3, lambda losses, model: losses.MultipleNegativesRankingLoss(model)),
    "simcse": (None, 1, lambda losses, model: losses.MultipleNegativesRankingLoss(model)),
    "cosent": ("score", 2, lambda losses, model: losses.CoSENTLoss(model)),
}


@pytest.fixture(scope="module")
def still_model(tmp_path_factory):
    """The tiny model without dropout: what a peer computes can be compared."""
    return write_model(tmp_path_factory.mktemp("still") / "still", num_layers=2, dropout=0.0, attention_dropout=0.0)


def setup_of(folder, name, pooling="mean"):
    """Eight rows of random words for an objective."""
    label, columns, _ = CASES[name]
    rng = np.random.default_rng(0)
    texts = [[" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(8)] for _ in range(columns)]
    labels = {"class": np.arange(8, dtype=np.int32) % 3, "score": np.arange(8, dtype=np.float32) % 6 / 5}.get(label)
    return dataclasses.replace(setup_for(folder, texts, pooling=pooling), labels=labels, classes=3)


def batch_of(setup, plan):
    labels = {} if plan.labels is None else {"labels": plan.labels}
    return jax.tree.map(jnp.asarray, setup.table.batch(np.arange(8), 32) | labels)


def value(setup, name, seed=0):
    plan = make_plan(name, setup)
    return float(jax.jit(plan.loss)(plan.params, batch_of(setup, plan), jax.random.key(seed))[0])


PARITY = [*((name, "mean") for name in CASES), ("softmax", "cls"), ("mnr", "max")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pooling"), PARITY)
def test_loss_and_gradient_of_every_weight_equal_sentence_transformers(still_model, tmp_path, name, pooling):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    from safetensors.numpy import load_file

    setup = setup_of(still_model, name, pooling)
    plan = make_plan(name, setup)
    step = jax.jit(jax.value_and_grad(plan.loss, has_aux=True))
    (found, _), gradients = step(plan.params, batch_of(setup, plan), jax.random.key(0))

    peer = library.SentenceTransformer(str(setup.start.save(tmp_path / "st")), device="cpu")
    peer.train()
    loss = CASES[name][2](losses, peer)
    target = None if setup.labels is None else torch.tensor(setup.labels)
    if name == "softmax":
        target = target.long()
        with torch.no_grad():
            loss.classifier.weight.copy_(torch.tensor(np.asarray(plan.params["head"]["kernel"]).reshape(-1, 3).T))
            loss.classifier.bias.copy_(torch.tensor(np.asarray(plan.params["head"]["bias"])))
    expected = loss([peer.tokenize(column) for column in setup.columns * OBJECTIVES[name].passes], target)
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), abs=1e-5)

    save_model(plan.rebuild(gradients["encoder"]), tmp_path / "gradients")
    mine = load_file(tmp_path / "gradients" / "model.safetensors")
    compared = 0
    for key, parameter in peer[0].auto_model.named_parameters():
        if "pooler" in key:
            continue
        expected = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        found = mine.get(key, mine.get(f"bert.{key}"))
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()), err_msg=key)
        compared += np.abs(expected).max() > 1e-4
    assert compared > 20


HEADS = {
    "dense": (Cls(), Dense(np.eye(8, 32, dtype=np.float32), None, None, "Tanh"), Normalize()),
    **{kind.__name__: (AfterPrompt(kind(), np.int32(0)), Normalize()) for kind in (Cls, Mean, Max, LastToken)},
}


@pytest.mark.parametrize("head", slow_but(HEADS, "dense", "Mean"))
def test_vectors_in_training_are_those_of_encode_with_the_prompt_of_each_column(still_model, head):
    model, _, folder = load_model(still_model)
    prompts, columns = {"query": "man: ", "document": "the sea: "}, [SENTENCES[:6], SENTENCES[3:9]]
    encoder = Encoder.from_module(model, folder, head=Head.of(HEADS[head]), prompts=prompts, max_length=24)
    chosen = OBJECTIVES["mnr"].prompts(encoder, 2)
    assert chosen == list(prompts.values())
    assert OBJECTIVES["cosine"].prompts(encoder, 2) == [None, None]
    table = tokenize_columns(
        columns, encoder.view.core.tokenizer, [encoder.view.head.form.with_prompt(text) for text in chosen]
    )
    plan = make_plan("mnr", training.Setup(model, encoder, columns, table, prompts=chosen))
    expected = [encoder.encode(column, prompt=prompt) for column, prompt in zip(columns, chosen, strict=True)]
    bare = [encoder.encode(column, prompt="") for column in columns]
    assert min(np.abs(a - b).max() for a, b in zip(expected, bare, strict=True)) > 1e-3, "the prompts matter"

    def farthest(found, labels, head):
        return jnp.max(jnp.abs(jnp.stack(found) - jnp.stack(expected)))

    loss = sentence_loss(plan.rebuild, farthest, steps=plan.fixed, skipped=table.skipped, passes=1)
    assert jax.jit(loss)(plan.params, table.batch(np.arange(6), 24), jax.random.key(0))[0] < 1e-5


def test_the_second_time_nothing_is_tokenized(tiny_model, monkeypatch):
    columns = [SENTENCES[:6], [SENTENCES[i] for i in (7, 0, 0, 9, 3, 1)]]
    first = tokenize_columns(columns, BulkTokenizer(tiny_model, 16))
    assert len(first.tokens.lengths) == len({text for column in columns for text in column}), "kept once each"
    others = [(columns, 12), (columns[::-1], 16), ([columns[0]], 16)]
    keys = {tokenize_columns(texts, BulkTokenizer(tiny_model, length)).key for texts, length in others}
    assert len({first.key, *keys}) == 4
    monkeypatch.setattr(BulkTokenizer, "__call__", lambda *_: pytest.fail("tokenized again"))
    second = tokenize_columns(columns, BulkTokenizer(tiny_model, 16))
    assert isinstance(second.tokens.flat, np.memmap)
    np.testing.assert_array_equal(first.tokens.flat, second.tokens.flat)
    np.testing.assert_array_equal(first.sentences, second.sentences)


@pytest.mark.parametrize(("columns", "words"), [([["a"], ["b", "c"]], "one length"), ([[]], "one row")])
def test_mistakes_are_named(tiny_model, columns, words):
    with pytest.raises(InputError, match=words):
        tokenize_columns(columns, BulkTokenizer(tiny_model, 16))


@pytest.mark.slow
def test_bfloat16_keeps_float32_parameters(shallow_model):
    setup = setup_of(shallow_model, "mnr")
    half = dataclasses.replace(setup, model=load_model(shallow_model, dtype="bfloat16")[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(make_plan("mnr", half).params)} == {jnp.dtype("float32")}
    assert value(half, "mnr") == pytest.approx(value(setup, "mnr"), abs=0.1)


@pytest.mark.slow
def test_simcse_passes_differ_by_dropout(shallow_model, still_model):
    noisy, still = (setup_of(folder, "simcse") for folder in (shallow_model, still_model))
    assert value(noisy, "simcse") != pytest.approx(value(noisy, "simcse", seed=1), abs=1e-3)
    assert value(still, "simcse") == value(still, "simcse", seed=1)


def test_the_pooler_is_left_alone(shallow_model):
    model, _, _ = load_model(shallow_model)

    def trained(pooling):
        return [
            path for path, _ in jax.tree.leaves_with_path(split_encoder(model, pooling)[0]) if "pooler" in str(path)
        ]

    assert not trained("mean")
    assert trained("pooler")
    params, rebuild = split_encoder(model, "mean")
    assert rebuild(params).pooler is not None
