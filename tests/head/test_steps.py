"""The seam: a new step or a new pooling is one class, and is found in encode, in folders, in ONNX and on the card."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.export import export_sentence_transformer, save_onnx
from jaxwhiten.head import (
    POOLINGS,
    STEPS,
    Dense,
    Head,
    LayerMix,
    Normalize,
    Pooling,
    StepModule,
    Truncate,
    VectorStep,
    dense_module,
    step,
)
from tests.graphs import run as run_onnx
from tests.tiny import ALONE, SENTENCES


@step
class Scale(VectorStep):
    """All columns times a number."""

    factor: float

    def __call__(self, x):
        return x * self.factor

    def to_folder(self, target):
        return [dense_module(np.eye(target.width) * self.factor)]

    def to_onnx(self, graph, x):
        return graph.op("Mul", x, graph.number(self.factor))

    def words(self):
        return f"times {self.factor:g}"


@step
class MeanAndMax(Pooling):
    """Half the mean and half the maximum of the tokens."""

    def pool(self, x, states):
        mask = states.mask[:, :, None]
        mean = (x * mask).sum(1) / mask.sum(1)
        return (mean + jnp.where(mask > 0, x, -jnp.inf).max(1)) / 2

    def to_folder(self, target):
        modes = {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}
        half = np.concatenate([np.eye(target.width)] * 2) / 2
        return [StepModule("Pooling", {"word_embedding_dimension": target.width, **modes}), dense_module(half)]

    def to_onnx(self, graph, x):
        weights = graph.op("Unsqueeze", x.weights, graph.integers(2))
        total = graph.op("ReduceSum", graph.op("Mul", x.mixed(graph), weights), graph.integers(1), keepdims=0)
        mean = graph.op("Div", total, graph.op("ReduceSum", weights, graph.integers(1), keepdims=0))
        masked = graph.op("Where", graph.op("Cast", weights, to=9), x.mixed(graph), graph.number(-1e30))
        most = graph.op("ReduceMax", masked, axes=[1], keepdims=0)
        return graph.op("Mul", graph.op("Add", mean, most), graph.number(0.5))

    def words(self):
        return "mean and max"


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(POOLINGS, "mean_and_max", lambda parameters: ("", lambda tables: (MeanAndMax(),)))


def encoders(tiny_model):
    plain = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24)
    mean, largest = (plain.encode(SENTENCES, pooling=name) for name in ("mean", "max"))
    yield plain.with_view(plain.view.then(Scale(3.0))), 3 * mean, "times 3"
    yield (
        Encoder.from_pretrained(tiny_model, pooling="mean_and_max", max_length=24),
        (mean + largest) / 2,
        "mean and max",
    )


def test_in_encode_in_a_folder_in_onnx_and_on_the_card(tiny_model, tmp_path, registered):
    for number, (encoder, wanted, words) in enumerate(encoders(tiny_model)):
        np.testing.assert_allclose(encoder.encode(SENTENCES), wanted, atol=1e-5)
        out = export_sentence_transformer(tmp_path / str(number), encoder)
        np.testing.assert_allclose(Encoder.from_pretrained(out).encode(SENTENCES), wanted, atol=1e-5)
        assert words in (out / "README.md").read_text(encoding="utf-8")


def test_in_sentence_transformers(tiny_model, tmp_path, registered):
    library = pytest.importorskip("sentence_transformers")
    for number, (encoder, wanted, _) in enumerate(encoders(tiny_model)):
        out = encoder.save(tmp_path / str(number))
        np.testing.assert_allclose(
            library.SentenceTransformer(str(out), device="cpu").encode(SENTENCES), wanted, atol=1e-5
        )


def test_in_onnx(tiny_model, tmp_path, registered):
    pytest.importorskip("onnxruntime")
    for number, (encoder, wanted, _) in enumerate(encoders(tiny_model)):
        out = save_onnx(tmp_path / str(number), encoder)
        np.testing.assert_allclose(run_onnx(out), wanted, atol=1e-5)


def test_a_head_has_one_pooling_and_steps_that_fit():
    with pytest.raises(InputError, match="one pooling; this one has 0"):
        Head.of((Normalize(),))
    head = Head.of((LayerMix((0, 2), np.ones(2, np.float32)), *Head.named("max").steps, Normalize()))
    assert head.summary == "layers 0+2 > max > normalize"
    assert (head.name, Head.of(Head.named("cls").steps).name) == ("auto", "cls")
    from tests.tiny import tiny_config

    with pytest.raises(MismatchError, match="Dense layer expects 8 dimensions, got 32 from the model"):
        head.then(Dense(np.zeros((4, 8), np.float32))).width(tiny_config())
    with pytest.raises(InputError, match="Cannot keep 33 columns"):
        head.then(Truncate(33)).width(tiny_config())
    assert head.then(Truncate(7)).width(tiny_config()) == 7


def test_truncation_is_the_first_columns_everywhere(tiny_model, tmp_path):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24)
    wanted = encoder.encode(SENTENCES)[:, :5]
    short = encoder.with_view(encoder.view.then(Truncate(5)))
    np.testing.assert_allclose(short.encode(SENTENCES), wanted, atol=1e-6)
    np.testing.assert_allclose(Encoder.from_pretrained(short.save(tmp_path)).encode(SENTENCES), wanted, atol=1e-5)
    assert set(STEPS) >= {"WeightedLayerPooling", "Pooling", "Dense", "Normalize"}


@pytest.mark.parametrize("outputs", [32, 12])
def test_a_dense_layer_with_a_residual(outputs):
    rng = np.random.default_rng(0)
    x, weight, bias, more = (
        rng.normal(size=size).astype(np.float32) for size in ((5, 32), (outputs, 32), outputs, (outputs, 32))
    )
    more = None if outputs == 32 else more
    residual = x if more is None else x @ more.T
    layer = Dense(*(None if a is None else jnp.asarray(a) for a in (weight, bias, more)), "Tanh", True)
    np.testing.assert_allclose(layer(jnp.asarray(x)), np.tanh(x @ weight.T + bias) + residual, atol=1e-5)


def test_tree_structures_of_different_steps_differ():
    """A compiled program is found by the tree structure of its heads."""
    structures = [jax.tree.structure(Head.named(name).steps) for name in ALONE]
    for number, one in enumerate(structures):
        assert [one == other for other in structures] == [i == number for i in range(len(structures))]
    assert jax.tree.structure(Truncate(3)) != jax.tree.structure(Truncate(4))
    head = Head.named("first_last_avg")
    leaves, structure = jax.tree.flatten(head.then(Normalize()).steps)
    again = jax.tree.unflatten(structure, leaves)
    assert [step.words() for step in again] == ["layers 1+-1", "mean", "normalize"]
