"""Poolings that need the encoder: grids of layers, ditto, promptbert and idf through `Encoder.encode`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh
from tokenizers import Tokenizer

from jaxwhiten import Encoder
from jaxwhiten.engines.forward import JAXEngine, forward
from jaxwhiten.errors import InputError, MismatchError, ModelError
from jaxwhiten.head import Dense, Head, write_folder
from jaxwhiten.head.pooling import Cls, Concat, Mean
from jaxwhiten.models import load_model
from tests.tiny import SENTENCES, write_model


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)


@pytest.fixture(scope="module")
def alone(tiny_model):
    """Token ids and all outputs of one sentence, straight through the model, as numpy."""
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    tokenizer.enable_truncation(48)
    model = load_model(tiny_model)[0]
    forward = nnx.jit(lambda model, ids, mask: model(ids, mask))

    def run(text):
        ids = tokenizer.encode(text).ids
        mask = np.arange(48) < len(ids)
        output = forward(model, jnp.asarray([ids + [0] * (48 - len(ids))]), jnp.asarray(mask[None]).astype(jnp.int32))
        hidden = [np.asarray(h[0, : len(ids)]) for h in output.hidden_states]
        return ids, hidden, [np.asarray(a[0, :, : len(ids)]) for a in output.attention_diagonals]

    return run


@pytest.mark.jax
def test_all_pairs_of_layers_in_one_forward_pass(encoder, alone, monkeypatch):
    pairs = list(itertools.combinations(range(3), 2))
    names = [f"layers:{i}+{j}" for i, j in pairs]
    passes, start = [], JAXEngine.start
    monkeypatch.setattr(
        JAXEngine, "start", lambda self, *args, **how: passes.append(list(args[2])) or start(self, *args, **how)
    )
    got = encoder.encode(SENTENCES, pooling=names, batch_size=1000)
    assert passes == [names]
    _, hidden, _ = alone(SENTENCES[3])
    for (i, j), name in zip(pairs, names, strict=True):
        expected = (hidden[i].mean(0) + hidden[j].mean(0)) / 2
        np.testing.assert_allclose(got[name][3], expected, atol=1e-5, err_msg=name)


@pytest.mark.jax
def test_nothing_is_computed_twice_or_for_nothing(encoder):
    """Each layer's mean is taken once, however many poolings share it; padding passes no dense layer."""
    graph = encoder.executor._graph
    weights = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in encoder.executor._weights]
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("data",))

    def flops(names, tokens=None):
        ids, lengths = jnp.ones((16, 1, 32), jnp.int32), jnp.full((16, 1), 32)
        arguments = (graph, weights, ids, lengths, {name: Head.named(name).steps for name in names}, tokens, mesh)
        cost = forward.lower(*arguments).compile().cost_analysis()
        return (cost[0] if isinstance(cost, list) else cost)["flops"]

    grid = tuple(f"layers:{i}+{j}" for i, j in itertools.combinations(range(3), 2))
    states = 16 * 32 * 32  # numbers in a hidden state
    assert flops(grid) - flops(tuple(f"layers:{i}" for i in range(3))) < states
    assert flops(("ditto:1+1",)) > flops(("layers:0+2",)) - 2 * states  # attention maps cost nothing unless asked for
    assert flops(("layers:1",)) < 0.6 * flops(("layers:2",))  # nor do layers that no pooling reads
    assert flops(("mean",), tokens=128) < 0.6 * flops(("mean",))  # of 512 positions; attention keeps them all


def test_ditto(encoder, alone):
    got = encoder.encode(SENTENCES, pooling=["ditto:1,2"])["ditto:1,2"]
    for row in (0, 4, 9):
        _, hidden, diagonals = alone(SENTENCES[row])
        expected = (diagonals[1][2][:, None] * (hidden[0] + hidden[-1]) / 2).sum(0)
        np.testing.assert_allclose(got[row], expected, atol=1e-5)


@pytest.mark.slow
def test_promptbert_beside_other_poolings(encoder, alone):
    sentences = [*SENTENCES, "A [MASK] of its own.", "water " * 300]
    got = encoder.encode(sentences, pooling=["mean", "promptbert", "cls"])
    assert list(got) == ["mean", "promptbert", "cls"]
    for name in ("mean", "cls"):
        np.testing.assert_array_equal(got[name], encoder.encode(sentences, pooling=name))
    for row in (0, 3, 7, 10):
        ids, hidden, _ = alone(f'This sentence : "{sentences[row]}" means [MASK] .')
        place = max(i for i, token in enumerate(ids) if token == encoder.tokenizer.mask_token_id)
        np.testing.assert_allclose(got["promptbert"][row], hidden[-1][place], atol=1e-5)
    assert np.isfinite(got["promptbert"][11]).all()
    blocks = list(encoder.encode_stream(sentences, pooling=["promptbert", "mean"], block_size=5))
    np.testing.assert_allclose(np.concatenate([b["promptbert"] for b in blocks]), got["promptbert"], atol=1e-5)


def test_idf_follows_the_corpus(tiny_model, alone):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)
    with pytest.raises(InputError, match="fit_idf"):
        encoder.encode(SENTENCES, pooling="idf")
    with pytest.raises(InputError, match="fit_idf with the same sentences"):
        encoder.encode(SENTENCES, pooling="idf:00000000")
    name = encoder.fit_idf(iter(SENTENCES))
    got = encoder.encode(SENTENCES, pooling=name)
    every = [set(alone(text)[0]) for text in SENTENCES]
    for row in (0, 3, 9):
        ids, hidden, _ = alone(SENTENCES[row])
        weights = np.array([np.log(11 / (1 + sum(token in ids_ for ids_ in every))) for token in ids])
        np.testing.assert_allclose(got[row], weights @ hidden[-1] / weights.sum(), atol=1e-5)
    empty = SENTENCES.index("")
    np.testing.assert_allclose(got[empty], encoder.encode([""])[0], atol=1e-5)

    other = encoder.fit_idf(SENTENCES[:3])
    assert other != name
    assert encoder.fit_idf(list(SENTENCES)) == name
    assert not np.allclose(encoder.encode(SENTENCES, pooling=other), got)
    np.testing.assert_array_equal(encoder.encode(SENTENCES, pooling=name), got)


def test_idf_of_no_text_is_refused(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48)
    with pytest.raises(InputError, match="No sentences"):
        encoder.fit_idf([])
    with pytest.raises(InputError, match="Sentence 1: "):
        encoder.fit_idf(iter(["a", None]))


def test_poolings_the_model_cannot_serve_are_refused_before_encoding(encoder, tiny_model):
    for name in ("layers:0,4", "ditto:3,0", "ditto:0,4"):
        with pytest.raises(InputError, match="this model has"):
            encoder.encode([], pooling=name)
        with pytest.raises(InputError, match="this model has"):
            Encoder.from_pretrained(tiny_model, pooling=name, max_length=48)
    with pytest.raises(InputError, match="'auto'"):
        encoder.encode([], pooling="auto")


def test_a_default_pooling_with_parameters(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="layers: 0, 2", max_length=48)
    assert encoder.pooling == "layers:0+2"
    expected = encoder.encode(SENTENCES, pooling="embeddings_last_avg")
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


def test_a_model_without_pooler_is_named(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = write_model(tmp_path / "bare")
    file = folder / "model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if not name.startswith("pooler")}, file)
    with pytest.raises(ModelError, match="bare: This model has no pooler"):
        Encoder.from_pretrained(folder, pooling="pooler", max_length=48)


def test_a_layer_of_the_folder_that_a_pooling_does_not_fit(encoder, tmp_path):
    layer = Dense(np.eye(8, 64, dtype=np.float32), np.zeros(8, np.float32), None, "Identity")
    head = Head.of((Concat((Cls(), Mean())), layer))
    folder = write_folder(tmp_path / "model", encoder.model(), encoder.tokenizer, head)
    own = Encoder.from_pretrained(folder)
    for ask in (lambda **how: Encoder.from_pretrained(folder, **how), lambda **how: own.encode("a", **how)):
        with pytest.raises(MismatchError, match=r"64 dimensions, got 32.*omit pooling='cls', or .*bare=True"):
            ask(pooling="cls")
    assert Encoder.from_pretrained(folder, pooling="cls", bare=True).dimension == 32
