"""Whole sentence-transformers folders: vectors equal to SentenceTransformer's, and what is not supported is named."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxwhiten import Encoder
from jaxwhiten.errors import ModelError
from jaxwhiten.head import read_head
from jaxwhiten.models import load_config
from tests.tiny import SENTENCES

TANH = "torch.nn.modules.activation.Tanh"
MEAN = ("Pooling", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})


def write_json(file, value):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value))


def dense(inputs, outputs, activation=TANH, **more):
    return {"in_features": inputs, "out_features": outputs, "bias": True, "activation_function": activation} | more


@pytest.fixture
def write(tiny_model, tmp_path):
    """Makes a folder of modules, each a name, its config.json and its tensors."""

    def make(*modules, **config):
        folder = shutil.copytree(tiny_model, tmp_path / "model")
        rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
        for number, (kind, raw, *tensors) in enumerate(modules, start=1):
            path = f"{number}_{kind.rpartition('.')[2]}"
            name = kind if "." in kind else f"sentence_transformers.models.{kind}"
            rows.append({"idx": number, "name": str(number), "path": path, "type": name})
            (folder / path).mkdir()
            if raw is not None:
                write_json(folder / path / "config.json", raw)
            for arrays in tensors:
                save_file(arrays, folder / path / "model.safetensors")
        write_json(folder / "modules.json", rows)
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"output_hidden_states": True} | config))
        return folder

    return make


def tensors(inputs, outputs, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"linear.weight": (outputs, inputs), "linear.bias": (outputs,)}
    return {name: rng.normal(size=shape).astype(np.float32) * 0.4 for name, shape in shapes.items()}


@pytest.mark.slow
def test_bfloat16_keeps_the_head_in_float32(write):
    folder = write(MEAN, ("Dense", dense(32, 6), tensors(32, 6)), ("Normalize", None))
    exact = Encoder.from_pretrained(folder, pooling="auto", engine="jax").encode(SENTENCES)
    rough = Encoder.from_pretrained(folder, pooling="auto", engine="jax", dtype="bfloat16").encode(SENTENCES)
    assert rough.dtype == np.float32
    assert (exact * rough).sum(1).min() > 0.999


def test_a_folder_without_modules_json(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    with pytest.raises(ModelError, match=r"no modules\.json"):
        read_head(folder, load_config(folder))


def layers(first):
    config = {"word_embedding_dimension": 32, "layer_start": first, "num_hidden_layers": 2}
    return "WeightedLayerPooling", config, {"layer_weights": np.ones(2, np.float32)}


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([MEAN, ("sentence_transformers.models.LSTM", {})], r"'sentence_transformers\.models\.LSTM' is not supported"),
        ([MEAN, ("somebody.modules.Dense", {})], r"'somebody\.modules\.Dense' is not supported"),
        ([], "expected one Transformer, then one Pooling"),
        ([MEAN, MEAN], "one Pooling"),
        ([("Dense", dense(32, 6), tensors(32, 6)), MEAN], "Dense is not supported at"),
        ([("Normalize", None), MEAN], "Normalize is not supported at"),
        ([MEAN, ("WeightedLayerPooling", {})], "WeightedLayerPooling is not supported at"),
        ([("Pooling", {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True})], "32.*48"),
        ([("Pooling", {"embedding_dimension": 32, "pooling_mode": "median"})], "median"),
        ([MEAN, ("Dense", dense(16, 6), tensors(16, 6))], "16.*has 32"),
        ([MEAN, ("Dense", dense(32, 6), tensors(32, 7))], r"linear\.weight.*\(7, 32\).*\(6, 32\)"),
        ([MEAN, ("Dense", dense(32, 10**9), tensors(32, 6))], r"linear\.weight"),
        ([MEAN, ("Dense", dense(32, 6))], "no weights"),
        ([MEAN, ("Dense", dense(32, 6, "os.system"), tensors(32, 6))], r"os\.system"),
        ([MEAN, ("Dense", dense(32, 6, "torch.nn.modules.activation.Softmax"), tensors(32, 6))], "Softmax"),
        ([MEAN, ("Dense", dense(32, 6, module_input_name="token_embeddings"), tensors(32, 6))], "token_embeddings"),
        ([MEAN, ("Normalize", {"module_input_name": "token_embeddings"})], "token_embeddings"),
        ([layers(-1), MEAN], "layer_start"),
        ([layers(3), MEAN], "layer_start|layer_weights"),
    ],
)
def test_what_is_not_supported_is_named(write, modules, message):
    folder = write(*modules)
    with pytest.raises(ModelError, match=message):
        Encoder.from_pretrained(folder, pooling="auto")
    Encoder.from_pretrained(folder, pooling="mean", bare=True)  # only the transformer is read


@pytest.mark.parametrize("path", ["../x", "/etc", ".\\\\.."])
def test_a_module_outside_the_folder_is_refused(write, path):
    folder = write(MEAN)
    write_json(folder / "modules.json", [{"type": "sentence_transformers.models.StaticEmbedding", "path": path}])
    with pytest.raises(ModelError, match="not a valid file"):
        Encoder.from_pretrained(folder)


def test_pickled_dense_weights_are_never_opened(write):
    folder = write(MEAN, ("Dense", dense(32, 6)))
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*pickled.*save_pretrained"):
        read_head(folder, load_config(folder))


def test_a_model_with_code_of_its_own_is_refused_by_name(write):
    folder = write(MEAN, model_type="somebodys", auto_map={"AutoModel": "modeling.SomebodysModel"})
    with pytest.raises(ModelError, match=r"'somebodys' is not supported.*modeling\.SomebodysModel.*never run"):
        Encoder.from_pretrained(folder)
