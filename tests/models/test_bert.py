"""BERT against transformers' PyTorch BertModel: every hidden state, random tiny models and real weights."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.models import init_model, load_model, save_model
from tests.tiny import tiny_config


def parity():
    """PyTorch and transformers, or a skip of the test that asks for them."""
    torch = pytest.importorskip("torch", reason="parity tests need the extra `parity`")
    return torch, pytest.importorskip("transformers")


def batch(vocab_size, shape=(5, 19), seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, vocab_size, shape)
    lengths = rng.integers(2, shape[1] + 1, shape[0])
    return ids, (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)


def assert_same_hidden_states(folder, ids, mask, segments=None, tolerance=2e-5):
    torch, transformers = parity()
    theirs = transformers.AutoModel.from_pretrained(str(folder)).eval()
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids),
            torch.tensor(mask),
            token_type_ids=None if segments is None else torch.tensor(segments),
            output_hidden_states=True,
        )
    ours, _, _ = load_model(folder)
    got = ours(jnp.asarray(ids), jnp.asarray(mask), None if segments is None else jnp.asarray(segments))
    assert len(got.hidden_states) == len(expected.hidden_states)
    for layer, (mine, other) in enumerate(zip(got.hidden_states, expected.hidden_states, strict=True)):
        difference = np.abs(np.asarray(mine) - other.numpy())[mask > 0].max()
        assert difference < tolerance, f"hidden state {layer}: {difference}"
    assert np.abs(np.asarray(got.pooler) - expected.pooler_output.numpy()).max() < tolerance


@pytest.mark.parametrize("changes", [{}, {"hidden_act": "gelu_new", "num_heads": 2}, {"hidden_act": "relu"}])
def test_hidden_states_equal_transformers_on_random_models(tmp_path, changes):
    config = tiny_config(initializer_range=0.2, **changes)
    save_model(init_model(config, seed=1), tmp_path)
    ids, mask = batch(config.vocab_size)
    segments = np.random.default_rng(1).integers(0, 2, ids.shape)
    assert_same_hidden_states(tmp_path, ids, mask)
    assert_same_hidden_states(tmp_path, ids, mask, segments)


def test_hidden_states_equal_transformers_on_all_minilm(minilm):
    ids, mask = batch(30_522, (4, 31))
    assert_same_hidden_states(minilm, ids, mask)


def test_a_folder_we_write_is_read_by_transformers_without_a_warning(tmp_path):
    _, transformers = parity()
    save_model(init_model(tiny_config(), seed=0), tmp_path)
    _, report = transformers.AutoModel.from_pretrained(str(tmp_path), output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]


def test_bfloat16_is_near_float32(tiny_model):
    ids, mask = batch(200)
    exact, _, _ = load_model(tiny_model)
    rough, _, _ = load_model(tiny_model, dtype="bfloat16")
    a = np.asarray(exact(jnp.asarray(ids), jnp.asarray(mask)).hidden_states[-1])[mask > 0]
    b = np.asarray(rough(jnp.asarray(ids), jnp.asarray(mask)).hidden_states[-1]).astype(np.float32)[mask > 0]
    assert rough.dtype == jnp.bfloat16
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert cosine.min() > 0.999


def test_dropout_only_when_training(tiny_model):
    from flax import nnx

    model, _, _ = load_model(tiny_model)
    ids, mask = map(jnp.asarray, batch(200))
    still = model(ids, mask).hidden_states[-1]
    noisy = [model(ids, mask, deterministic=False, rngs=nnx.Rngs(dropout=s)).hidden_states[-1] for s in (0, 0, 1)]
    np.testing.assert_array_equal(noisy[0], noisy[1])
    assert not np.allclose(noisy[0], noisy[2])
    assert not np.allclose(still, noisy[0])


def test_gradient_checkpointing_changes_no_gradient(tmp_path):
    from flax import nnx

    save_model(init_model(tiny_config(initializer_range=0.2), seed=0), tmp_path)
    ids, mask = map(jnp.asarray, batch(200))
    gradients = []
    for remat in (False, True):
        model, _, _ = load_model(tmp_path, remat=remat)
        gradient = nnx.grad(
            lambda m: (m(ids, mask, deterministic=False, rngs=nnx.Rngs(dropout=3)).hidden_states[-1] ** 2).mean()
        )
        grads = nnx.jit(gradient)(model)
        gradients.append(nnx.to_pure_dict(grads))
    import jax

    for plain, recomputed in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(plain, recomputed, rtol=1e-4, atol=1e-6)
