"""Reading weights: every layout accepted, every fault named."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

import jaxwhiten
from jaxwhiten.errors import ModelError
from jaxwhiten.models import FAMILIES, checkpoint, folders, init_model, load_model, resolve_folder, save_model
from tests.tiny import tiny_config, write_tokenizer


@pytest.fixture
def folder(tiny_model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(tiny_model, copy)
    return copy


def parameters(folder):
    return jax.tree.leaves(nnx.to_pure_dict(nnx.state(load_model(folder)[0], nnx.Param)))


def assert_same(first, second):
    for a, b in zip(parameters(first), parameters(second), strict=True):
        np.testing.assert_array_equal(a, b)


def rewrite(folder, change):
    """Replaces model.safetensors by what `change` makes of its tensors."""
    file = folder / "model.safetensors"
    tensors = change(load_file(file))
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, file)


def test_prefix_and_old_layer_norm_names_are_accepted(tiny_model, folder):
    def old(tensors):
        return {
            "bert." + n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for n, v in tensors.items()
        }

    rewrite(folder, old)
    assert_same(tiny_model, folder)


def write_shards(folder, tensors):
    """Writes tensors into two files in place of one, and returns their index."""
    (folder / "model.safetensors").unlink()
    names, weight_map = list(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_shards_are_read(tiny_model, folder):
    index = write_shards(folder, load_file(folder / "model.safetensors"))
    assert_same(tiny_model, folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00002.*missing"):
        load_model(folder)
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(ModelError, match="is not a valid file or folder name"):
        load_model(folder)


BIAS = "embeddings.LayerNorm.bias"
FAULTS = {
    "missing": (lambda t: t.pop("encoder.layer.1.output.dense.weight"), r"layer\.1\.output\.dense\.weight.*missing"),
    "another shape": (lambda t: t.update({BIAS: np.zeros(33, np.float32)}), r"LayerNorm\.bias.*\(33,\).*\(32,\)"),
    "NaN": (lambda t: t.update({BIAS: np.full(32, np.nan, np.float32)}), "NaN"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_weights_are_named(folder, fault):
    change, words = FAULTS[fault]
    rewrite(folder, lambda tensors: [tensors, change(tensors)][0])
    with pytest.raises(ModelError, match=words):
        load_model(folder)


def test_pickled_weights_are_never_opened(folder):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('unpickled')",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*save_pretrained"):
        load_model(folder)


def test_packaged_weights_answer_to_their_hub_id(minilm):
    assert resolve_folder("sentence-transformers/all-MiniLM-L6-v2") == minilm


def test_packaged_weights_that_are_damaged_are_refused(monkeypatch):
    module, inner, _ = folders._PACKAGED["jaxwhiten-tiny"]
    monkeypatch.setitem(folders._PACKAGED, "jaxwhiten-tiny", (module, inner, "0" * 64))
    with pytest.raises(ModelError, match="sha256"):
        resolve_folder("jaxwhiten-tiny")


_LOADING = """
import sys
import jax
from transformers import AutoTokenizer  # which makes the first tokenizer of a folder
from jaxwhiten import Encoder
from eval.machine import peak_memory
small, large, dtype = sys.argv[1:]
Encoder.from_pretrained(small, pooling="mean", dtype=dtype, engine="jax").view.core.engine._weights
before = peak_memory()
encoder = Encoder.from_pretrained(large, pooling="mean", dtype=dtype, engine="jax")
leaves = encoder.view.core.engine._weights
print((peak_memory() - before) * 1e9, {str(leaf.dtype) for leaf in leaves})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stored", "dtype"), [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")]
)
def test_two_shards_take_little_more_memory_than_their_parameters(tiny_model, tmp_path, stored, dtype):
    config = tiny_config(vocab_size=60_000, hidden_size=512, num_layers=6, num_heads=8, intermediate_size=2048)
    model = init_model(config, seed=0)
    save_model(model, tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    tensors = checkpoint.to_tensors(FAMILIES["bert"], nnx.state(model, nnx.Param), stored)
    write_shards(tmp_path / "model", tensors)
    size = sum(tensor.size for tensor in tensors.values()) * (4 if dtype == "float32" else 2)
    assert size > 90e6
    command = [sys.executable, "-c", _LOADING, str(tiny_model), str(tmp_path / "model"), dtype]
    environment = os.environ | {"PYTHONPATH": str(Path(jaxwhiten.__file__).parent.parent), "XLA_FLAGS": ""}
    environment["JAXWHITEN_COMPILATION_CACHE"] = "0"  # of reading alone
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    taken, dtypes = done.stdout.split(maxsplit=1)
    assert float(taken) < 1.2 * size
    assert dtypes.strip() == repr({dtype})


def test_narrow_parameters_are_those_of_float32_rounded(tiny_model):
    exact, narrow = load_model(tiny_model)[0], load_model(tiny_model, dtype="bfloat16", narrow=True)[0]
    assert load_model(tiny_model, dtype="bfloat16")[0].layers[0].attention.query.kernel.dtype == np.float32
    for a, b in zip(*(jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (exact, narrow)), strict=True):
        np.testing.assert_array_equal(np.asarray(a, b.dtype), b)
        assert b.dtype.name == "bfloat16"
