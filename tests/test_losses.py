"""Losses: values of their formulas, finite gradients, and mesh independence; parity is in training/test_sentences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxwhiten import losses
from jaxwhiten.losses import parse_concatenation
from jaxwhiten.training.objectives import OBJECTIVES, objective_loss
from tests.conftest import slow_but

CONCATENATIONS = ["(u,v)", "(|u-v|)", "(u*v)", "(|u-v|,u*v)", "(u,v,u*v)", "(u,v,|u-v|)", "(u,v,|u-v|,u*v)"]
B, D, CLASSES = 8, 12, 3


def draw(columns: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(columns, B, D)).astype(np.float32))


def draw_labels(kind: str | None) -> np.ndarray | None:
    rng = np.random.default_rng(7)
    if kind == "vector":
        return rng.normal(size=(B, 2, D)).astype(np.float32)
    if kind == "class":
        return rng.integers(0, CLASSES, B).astype(np.int32)
    # Scores repeat, so that CoSENT meets ties.
    return rng.choice([0.0, 0.2, 0.5, 1.0], B).astype(np.float32) if kind == "score" else None


CASES = [
    *(("softmax", {"concatenation": c}, 2) for c in CONCATENATIONS),
    ("cosine", {}, 2),
    ("triplet", {"margin": 1.0}, 3),
    ("triplet", {"margin": 5.0}, 3),
    ("mnr", {"scale": 20.0}, 2),
    ("mnr", {"scale": 20.0}, 3),
    ("mnr", {"scale": 5.0}, 4),
    ("simcse", {"temperature": 0.05}, 2),
    ("cosent", {"scale": 20.0}, 2),
    ("distil_mse", {}, 1),
    ("distil_cosine", {}, 1),
]
ONE_OF_EACH = {case[0]: case for case in CASES}.values()


def make_head(name, settings):
    head = losses.init_classifier(jax.random.key(3), D, CLASSES, **settings) if name == "softmax" else {}
    return {key: np.asarray(value) for key, value in head.items()}


def on_eight_devices_as_on_one(loss, columns, labels, head):
    """Asserts that a loss and its gradient do not depend on the devices of a batch; returns the loss."""
    gradient = jax.jit(jax.value_and_grad(lambda c, y: loss(c, y, head)))

    def on(devices):
        sharding = NamedSharding(Mesh(np.array(devices), ("data",)), P("data"))
        return gradient(jax.device_put(columns, sharding), None if labels is None else jax.device_put(labels, sharding))

    one, eight = on(jax.devices()[:1]), on(jax.devices())
    assert len(eight[1][0].sharding.device_set) == 8
    np.testing.assert_allclose(eight[0], one[0], atol=1e-5)
    for a, b in zip(eight[1], one[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    return float(one[0])


def cosines(a, b):
    return (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)


def in_numpy(name, settings, columns, labels, head):
    """The objective by its formula, in float64."""
    u, v, *rest = (column.astype(np.float64) for column in (columns if len(columns) > 1 else columns * 2))
    if name.startswith("distil"):
        teacher = labels[:, 0, : u.shape[1]].astype(np.float64)
        return np.mean((u - teacher) ** 2 if name == "distil_mse" else 1 - np.diag(cosines(u, teacher)))
    if name == "softmax":
        features = {"u": u, "v": v, "|u-v|": np.abs(u - v), "u*v": u * v}
        parts = parse_concatenation(settings.get("concatenation", "(u,v,|u-v|)"))
        logits = sum(features[part] @ head["kernel"][i] for i, part in enumerate(parts)) + head["bias"]
        return np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(B), labels])
    if name == "cosine":
        return np.mean((np.diag(cosines(u, v)) - labels) ** 2)
    if name == "triplet":
        near, far = (np.linalg.norm(u - x, axis=1) for x in (v, rest[0]))
        return np.mean(np.maximum(near - far + settings["margin"], 0))
    if name == "cosent":
        scaled = settings["scale"] * np.diag(cosines(u, v))
        pairs = [scaled[j] - scaled[i] for i in range(B) for j in range(B) if labels[i] > labels[j]]
        return np.log(1 + np.exp(pairs).sum())
    scale = settings["scale"] if name == "mnr" else 1 / settings["temperature"]
    scores = scale * cosines(u, np.concatenate([v, *rest]))
    return np.mean(np.log(np.exp(scores).sum(1)) - np.diag(scores))


@pytest.mark.parametrize(
    ("dims", "weights"),
    [((), ()), pytest.param((D, 6, 3), (1.0, 0.5, 2.0), marks=pytest.mark.slow)],
    ids=["whole", "matryoshka"],
)
@pytest.mark.parametrize(("name", "settings", "columns"), slow_but(CASES, *ONE_OF_EACH))
def test_values_are_those_of_numpy(name, settings, columns, dims, weights):
    data, labels, head = draw(columns), draw_labels(OBJECTIVES[name].label), make_head(name, settings)
    given = None if labels is None else jnp.asarray(labels)
    loss = objective_loss(name, dims, weights, **settings)
    found = loss([jnp.asarray(c) for c in data], given, {key: jnp.asarray(value) for key, value in head.items()})
    expected = 0.0
    for k, weight in zip(dims or (D,), weights or (1.0,), strict=True):
        cut = [c[:, :k] / np.linalg.norm(c[:, :k], axis=1, keepdims=True) for c in data] if dims else data
        of_prefix = {name: value[:, :k] if name == "kernel" else value for name, value in head.items()}
        expected += weight * in_numpy(name, settings, cut, labels, of_prefix)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_cosent_is_zero_without_ordered_pairs():
    u, v = (jnp.asarray(x) for x in draw(2))
    assert float(losses.cosent(u, v, jnp.full(B, 0.5))) == 0.0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_finite_where_vectors_are_zero_or_equal(name):
    kind = OBJECTIVES[name]
    columns = kind.columns[0] * kind.passes
    same = np.ones((B, D), np.float32)
    same[0] = 0.0
    head = make_head(name, {})
    loss, labels = objective_loss(name), draw_labels(kind.label)
    labels = None if labels is None else jnp.asarray(labels)
    found = jax.value_and_grad(lambda c, h: loss(c, labels, h), argnums=(0, 1))([jnp.asarray(same)] * columns, head)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("name", slow_but(OBJECTIVES, "mnr"))
@pytest.mark.devices
def test_eight_devices_give_the_loss_of_one(name):
    """A batch sharded over the mesh is one batch: negatives of other devices count."""
    kind = OBJECTIVES[name]
    columns = draw(3 if name == "mnr" else kind.columns[0] * kind.passes)
    labels = draw_labels(kind.label)
    head = {k: jnp.asarray(v) for k, v in make_head(name, {}).items()}
    loss = objective_loss(name)
    one = on_eight_devices_as_on_one(loss, columns, labels, head)
    if name == "mnr":
        halves = [float(loss([jnp.asarray(c[i : i + 4]) for c in columns], None, {})) for i in (0, 4)]
        assert abs(np.mean(halves) - one) > 1e-2, "halves see fewer negatives, so their loss must differ"
