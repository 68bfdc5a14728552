"""Every family against transformers' PyTorch module: all hidden states, the pooler, and folders read both ways.

What needs no PyTorch is tested on the checkpoints of the golden vectors.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from jaxwhiten.errors import ModelError
from jaxwhiten.models import load_config, load_model, save_model
from tests.conftest import slow_but
from tests.golden.cases import CASES as GOLDEN
from tests.golden.cases import golden, inputs, outputs, write_checkpoint
from tests.models.test_golden import assert_close

# Name of the case -> transformers' architecture and its configuration; transformers has no experts in NomicBERT.
CASES = {name: case for name, case in GOLDEN.items() if "experts" not in name} | {
    name: (GOLDEN[base][0], {**GOLDEN[base][1], **changes})
    for name, base, changes in (
        ("albert, uneven groups", "albert", {"num_hidden_groups": 3, "num_hidden_layers": 4}),
        ("qwen3, no windows", "qwen3", {"use_sliding_window": False}),
        ("gemma3_text, is_causal", "gemma3_text", {"is_causal": False}),
        ("t5, gated SiLU", "t5", {"feed_forward_proj": "gated-silu"}),
        ("mt5, not gated", "mt5", {"feed_forward_proj": "relu"}),
        ("gte, no token types", "gte", {"type_vocab_size": 0}),
    )
}


def parity():
    """PyTorch and transformers, or a skip of the test that asks for them."""
    torch = pytest.importorskip("torch", reason="parity tests need the extra `parity`")
    return torch, pytest.importorskip("transformers")


def write(folder, case, **changes):
    """A random model of transformers; all its tensors are moved off their ones and zeros."""
    torch, transformers = parity()
    architecture, sizes = CASES[case]
    torch.manual_seed(0)
    module = getattr(transformers, architecture)
    model = module(module.config_class(**{**sizes, "initializer_range": 0.15, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(str(folder))
    return model


def batch(length=19, pad=1):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 40, (4, length))
    mask = (np.arange(length) < np.array([length, 2, length // 2, length - 1])[:, None]).astype(np.int64)
    return np.where(mask, ids, pad), mask


def assert_same_output(theirs, folder, ids, mask):
    torch, _ = parity()
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True)
    ours, _, _ = load_model(folder)
    got = nnx.jit(lambda m, *args: m(*args))(ours, jnp.asarray(ids), jnp.asarray(mask))
    assert len(got.hidden_states) == len(expected.hidden_states)
    for layer, (mine, other) in enumerate(zip(got.hidden_states, expected.hidden_states, strict=True)):
        assert np.abs(other.numpy()).max() > 0.1
        difference = np.abs(np.asarray(mine) - other.numpy())[mask > 0].max()
        assert difference < 2e-5, f"hidden state {layer}: {difference}"
    pooler = getattr(expected, "pooler_output", None)
    assert (got.pooler is None) == (pooler is None)
    if pooler is not None:
        np.testing.assert_allclose(got.pooler, pooler.numpy(), atol=2e-5)


def assert_golden_states(folder, case):
    """Loads a folder of the case's weights, in whatever layout, and compares its hidden states."""
    loaded = load_model(folder)
    arrays = inputs(case, loaded[1].pad_token_id)
    got = loaded[0](*map(jnp.asarray, arrays.values()))
    for name, states in outputs(arrays["attention_mask"], got.hidden_states, None):
        assert_close(states, golden(case)[name], name)
    return loaded


def assert_read_back(theirs, ours):
    """Writes the model of a folder into another one, with the same tensors; its configuration."""
    model, config, _ = load_model(theirs)
    save_model(model, ours)
    assert load_config(ours) == config
    tensors, written = (load_file(folder / "model.safetensors") for folder in (theirs, ours))
    assert tensors.keys() == written.keys()
    for name in tensors:
        np.testing.assert_array_equal(tensors[name], written[name], err_msg=name)
    return config


@pytest.mark.parametrize("case", slow_but(CASES, "roberta", "modernbert", "qwen3, no windows"))
def test_what_we_write_is_read_by_transformers_and_by_us(tmp_path, case):
    _, transformers = parity()
    write(tmp_path / "theirs", case)
    config = assert_read_back(tmp_path / "theirs", tmp_path / "ours")
    module = getattr(transformers, CASES[case][0])
    theirs, report = module.from_pretrained(str(tmp_path / "ours"), output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids, mask = batch(pad=config.pad_token_id)
    assert_same_output(theirs.eval(), tmp_path / "ours", ids, mask)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["albert", "modernbert"])
def test_gradients_flow_through_shared_local_and_rotary_layers(tmp_path, case):
    write_checkpoint(tmp_path, case)
    ids, mask = (jnp.asarray(inputs(case, 0)[name]) for name in ("input_ids", "attention_mask"))
    gradients = []
    for remat in (False, True):
        model, _, _ = load_model(tmp_path, remat=remat)
        loss = nnx.grad(lambda m: (m(ids, mask, rngs=nnx.Rngs(0)).hidden_states[-1] ** 2).mean())
        grads = nnx.to_pure_dict(nnx.jit(loss)(model))
        grads.pop("pooler", None)
        gradients.append(jax.tree.leaves(grads))
    assert all(np.abs(leaf).max() > 0 for leaf in gradients[0])
    for plain, recomputed in zip(*gradients, strict=True):
        np.testing.assert_allclose(plain, recomputed, rtol=1e-4, atol=1e-5)


# Keys of older files, and those that say the same.
OLDER = {
    "modernbert": (
        ("layer_types", "rope_parameters"),
        {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0},
    ),
    "qwen3, bidirectional": (("is_causal",), {"model_type": "bidirectional_pplx_qwen3"}),  # of Perplexity
    "gemma3_text": (
        ("rope_parameters",),
        {"rope_theta": 400, "rope_local_base_freq": 20, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
}


def rewrite(folder, removed=(), **added):
    file = folder / "config.json"
    raw = {key: value for key, value in json.loads(file.read_text()).items() if key not in removed}
    file.write_text(json.dumps(raw | added))


@pytest.mark.parametrize("case", OLDER)
def test_older_keys_say_the_same(tmp_path, case):
    expected = load_config(write_checkpoint(tmp_path, case))
    removed, added = OLDER[case]
    rewrite(tmp_path, removed, **added)
    assert load_model(tmp_path)[1] == expected


def test_what_older_keys_say(tmp_path):
    """Of ModernBERT, and of GTE, whose NTK scaling is a larger base and angles divided alike."""
    removed, added = OLDER["modernbert"]
    write_checkpoint(tmp_path, "modernbert")
    rewrite(tmp_path, removed, **added | {"global_attn_every_n_layers": 2, "local_rope_theta": 500.0})
    assert (load_config(tmp_path).local_layers, load_config(tmp_path).local_rotary_theta) == ((1, 3), 500.0)
    write_checkpoint(tmp_path, "gte")
    scaling = {"rope_theta": 2e4, "rope_scaling": {"type": "ntk", "factor": 8.0}}
    rewrite(tmp_path, ["rope_parameters"], model_type="new", **scaling)
    config = load_config(tmp_path)
    assert (config.model_type, config.rotary_theta) == ("gte", 1.6e5)
    assert config.rotary_scaling.factor == 8 ** (2 / 8)  # heads of 8


# A config.json as NomicBERT's repository has it, for the sizes of the golden case.
OLDER_NOMIC = {
    "model_type": "nomic_bert",
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_inner": 24,
    "n_positions": 24,
    "vocab_size": 40,
    "layer_norm_epsilon": 0.02,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "activation_function": "swiglu",
    "qkv_proj_bias": False,
    "prenorm": False,
}


def test_nomic_berts_older_keys_and_other_names(tmp_path):
    """What transformers writes has the names that are published; in memory it has others."""
    file = write_checkpoint(tmp_path, "nomic_bert") / "config.json"
    newer = file.read_text()
    file.write_text(json.dumps(OLDER_NOMIC | {"prenorm": True}))
    with pytest.raises(ModelError, match="prenorm"):
        load_model(tmp_path)
    file.write_text(json.dumps(OLDER_NOMIC))
    assert_golden_states(tmp_path, "nomic_bert")
    _, transformers = parity()
    file.write_text(newer)
    theirs = transformers.AutoModel.from_pretrained(str(tmp_path))
    tensors = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    assert "layers.0.self_attn.q_proj.weight" in tensors
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    file.write_text(json.dumps(OLDER_NOMIC))
    assert_golden_states(tmp_path, "nomic_bert")


@pytest.mark.parametrize(
    "case", ["roberta", "xlm-roberta", "electra", "distilbert", "mpnet", "modernbert", "nomic_bert"]
)
def test_prefixes_of_checkpoints_with_a_head(tmp_path, case):
    """`test_unused.py` has every architecture of transformers."""
    write_checkpoint(tmp_path, case)
    prefix = {"xlm-roberta": "roberta.", "modernbert": "model."}.get(case, f"{case}.")
    file = tmp_path / "model.safetensors"
    tensors = {name: value for name, value in load_file(file).items() if not name.startswith("pooler")}
    prefixed = {prefix + name: value for name, value in tensors.items()} | {"lm_head.bias": np.zeros(3, np.float32)}
    save_file(prefixed, file, metadata={"format": "pt"})
    model, config, _ = load_model(tmp_path)
    assert (model.pooler, config.pooler) == (None, False)
    save_model(model, tmp_path / "ours")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert written.keys() == tensors.keys()
    assert all((written[name] == tensors[name]).all() for name in tensors)


def test_a_family_that_transformers_has_not_is_read_back(tmp_path):
    assert_read_back(write_checkpoint(tmp_path / "theirs", "nomic_bert, experts"), tmp_path / "ours")


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("albert", {"num_hidden_groups": 5}, "5 groups"),
        ("albert", {"embedding_size": 10**9}, "embedding_size"),
        ("bert", {"is_decoder": True}, "is_decoder"),
        ("bert", {"model_type": "gpt2"}, "gpt2.*Supported: bert"),
        ("bert", {"hidden_size": 16_000, "num_hidden_layers": 500, "intermediate_size": 100_000}, "parameters"),
        ("bert", {"num_attention_heads": 5}, "multiple"),
        ("bert", {"vocab_size": "many"}, "vocab_size"),
        ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("bert", {"hidden_act": "gelut"}, "gelu"),
        ("bert", {"hidden_size": None}, "hidden_size"),
        ("bert", {"layer_norm_eps": 10**400}, "layer_norm_eps"),
        ("bert", {"initializer_range": float("inf")}, "initializer_range"),
        ("roberta", {"pad_token_id": 30}, "positions"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets"),
        ("modernbert", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
        ("modernbert", {"layer_types": None, "num_hidden_layers": 10**12}, "num_layers"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "yarn"),
        ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
        ("modernbert", {"hidden_size": 36, "num_attention_heads": 12}, "odd"),
        ("nomic_bert", {"head_dim": 16}, "head_dim"),
        ("nomic_bert, experts", {"moe_top_k": 5}, "5 of 4 experts"),
        ("qwen3", {"num_key_value_heads": 3}, "4 heads do not share 3"),
        ("qwen3", {"is_causal": "no"}, "is_causal"),
        ("qwen3", {"rope_scaling": {"type": "llama3", "factor": 8.0}}, "llama3"),
        ("qwen3", {"sliding_window": 0}, "sliding_window is 0"),
        ("gemma3_text, bidirectional", {"sliding_window": -1}, "sliding_window is -1"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("t5", {"feed_forward_proj": "gelu-gated"}, "gelu-gated"),
        ("mt5", {"is_gated_act": False}, "is_gated_act"),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 1}}, "mixed_b"),
        ("jina_embeddings_v3", {"lora_adaptations": ["retrieval.query"]}, "lora_adaptations"),
        ("bert", {"model_type": "embedding_gemma2"}, "embedding_gemma2"),
        ("nomic_bert", {"rotary_emb_interleaved": True}, "rotary_emb_interleaved"),
        ("distilbert", {"dim": 10**12}, "hidden_size"),
    ],
)
def test_configs_that_are_not_supported_are_refused_by_name(tmp_path, case, change, message):
    write_checkpoint(tmp_path, case)
    rewrite(tmp_path, **change)
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)
