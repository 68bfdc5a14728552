"""Sentence batches through encoder and loss: parity with sentence-transformers, devices, accumulation, bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder, losses, training
from jaxwhiten.head import AfterPrompt, Dense, Head, Mean, Normalize
from jaxwhiten.head.pooling import Cls, LastToken, Max
from jaxwhiten.models import load_model, save_model
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training.objectives import OBJECTIVES, make_plan, objective_loss
from jaxwhiten.training.sentences import sentence_loss, split_encoder, tokenize_columns
from tests.conftest import own_cache
from tests.tiny import SENTENCES, write_model

WORDS = " ".join(SENTENCES).split()
CASES = {
    "softmax": ("class", 2),
    "cosine": ("score", 2),
    "triplet": (None, 3),
    "mnr": (None, 3),
    "simcse": (None, 1),
    "cosent": ("score", 2),
}


def make_rows(name, rows=16, seed=0):
    """Sentences of random words, and labels of the kind the objective takes."""
    label, columns = CASES[name]
    rng = np.random.default_rng(seed)
    texts = [[" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(rows)] for _ in range(columns)]
    if label == "class":
        return texts, rng.integers(0, 3, rows).astype(np.int32)
    return texts, rng.integers(0, 6, rows).astype(np.float32) / 5 if label else None


@pytest.fixture(scope="module")
def still_model(tmp_path_factory):
    """The tiny model without dropout: what a peer computes can be compared."""
    return write_model(tmp_path_factory.mktemp("still") / "still", num_layers=2, dropout=0.0, attention_dropout=0.0)


class Setup:
    """Everything up to the step for an objective on a model folder."""

    def __init__(self, folder, name, *, pooling="mean", rows=16, dtype="float32", **settings):
        self.texts, self.labels = make_rows(name, rows)
        model, config, _ = load_model(folder, dtype=dtype)
        encoder, self.rebuild = split_encoder(model, pooling)
        head = losses.init_classifier(jax.random.key(1), config.hidden_size, 3) if name == "softmax" else {}
        self.params = {"encoder": encoder, "head": head}
        self.table = tokenize_columns(self.texts, BulkTokenizer(folder, 32))
        passes = OBJECTIVES[name].passes
        loss = objective_loss(name, **settings)
        self.loss_fn = sentence_loss(self.rebuild, loss, steps=Head.named(pooling).steps, passes=passes)

    def value(self, seed=0):
        """The loss of the first rows."""
        batch = self.table.batch(np.arange(8), 32) | ({} if self.labels is None else {"labels": self.labels[:8]})
        return float(jax.jit(self.loss_fn)(self.params, batch, jax.random.key(seed))[0])


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))


# --- parity ---------------------------------------------------------------------------------------------------------


def peer_loss(name, model, head, peers, torch):
    """sentence-transformers' objective with our classifier in it."""
    if name != "softmax":
        return {
            "cosine": lambda: peers.CosineSimilarityLoss(model),
            "triplet": lambda: peers.TripletLoss(model, triplet_margin=1.0),
            "mnr": lambda: peers.MultipleNegativesRankingLoss(model),
            "simcse": lambda: peers.MultipleNegativesRankingLoss(model),
            "cosent": lambda: peers.CoSENTLoss(model),
        }[name]()
    loss = peers.SoftmaxLoss(model, model.get_embedding_dimension(), 3)
    with torch.no_grad():
        loss.classifier.weight.copy_(torch.tensor(np.asarray(head["kernel"]).reshape(-1, 3).T))
        loss.classifier.bias.copy_(torch.tensor(np.asarray(head["bias"])))
    return loss


PARITY = [*((name, "mean") for name in CASES), ("softmax", "cls"), ("mnr", "max")]


@pytest.mark.parametrize(("name", "pooling"), PARITY)
def test_loss_and_gradient_of_every_weight_equal_sentence_transformers(still_model, tmp_path, name, pooling):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    peers = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    from safetensors.numpy import load_file

    ours = Setup(still_model, name, pooling=pooling, rows=8)
    batch = ours.table.batch(np.arange(8), 32) | ({} if ours.labels is None else {"labels": ours.labels})
    batch = jax.tree.map(jnp.asarray, batch)
    (value, _), gradients = jax.jit(jax.value_and_grad(ours.loss_fn, has_aux=True))(
        ours.params, batch, jax.random.key(0)
    )

    model, _, folder = load_model(still_model)
    Encoder.from_module(model, folder, pooling=pooling, max_length=32).save(tmp_path / "st")
    peer = library.SentenceTransformer(str(tmp_path / "st"), device="cpu")
    peer.train()
    loss = peer_loss(name, peer, ours.params["head"], peers, torch)
    texts = ours.texts * OBJECTIVES[name].passes
    target = None if ours.labels is None else torch.tensor(ours.labels.astype(np.int64 if name == "softmax" else None))
    their_value = loss([peer.tokenize(column) for column in texts], target)
    their_value.backward()
    assert float(value) == pytest.approx(their_value.item(), abs=1e-5)

    save_model(ours.rebuild(gradients["encoder"]), tmp_path / "gradients")
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


@pytest.mark.parametrize(
    "steps",
    [
        (Cls(), Dense(np.eye(8, 32, dtype=np.float32), None, None, "Tanh"), Normalize()),
        *((AfterPrompt(pooling(), np.int32(0)), Normalize()) for pooling in (Cls, Mean, Max, LastToken)),
    ],
    ids=["dense", "cls", "mean", "max", "lasttoken"],
)
def test_vectors_in_training_are_those_of_encode_with_the_prompt_of_each_column(still_model, steps):
    model, _, folder = load_model(still_model)
    prompts, columns = {"query": "man: ", "document": "the sea: "}, [SENTENCES[:6], SENTENCES[3:9]]
    encoder = Encoder.from_module(model, folder, head=Head.of(steps), prompts=prompts, max_length=24)
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


# --- dropout and precision ------------------------------------------------------------------------------------------


def test_bfloat16_keeps_float32_parameters(shallow_model):
    setup = Setup(shallow_model, "mnr", dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(setup.params)} == {jnp.dtype("float32")}
    assert setup.value() == pytest.approx(Setup(shallow_model, "mnr").value(), abs=0.1)


def test_simcse_passes_differ_by_dropout(shallow_model, still_model):
    noisy, still = (Setup(folder, "simcse", rows=8) for folder in (shallow_model, still_model))
    assert noisy.value() != pytest.approx(noisy.value(seed=1), abs=1e-3)
    assert still.value() == still.value(seed=1)


def test_the_pooler_is_left_alone(shallow_model):
    model, _, _ = load_model(shallow_model)
    params, rebuild = split_encoder(model, "mean")
    assert not [path for path, _ in jax.tree.leaves_with_path(params) if "pooler" in str(path)]
    assert rebuild(params).pooler is not None
    assert [path for path, _ in jax.tree.leaves_with_path(split_encoder(model, "pooler")[0]) if "pooler" in str(path)]
