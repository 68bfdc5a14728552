"""The files of a sentence-transformers folder beside its Transformer: a head, or a ModelError."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from jaxwhiten.head import read_head
from tests.fuzz.common import attempt, fuzz, json_text
from tests.tiny import tiny_config, write_model

KINDS = ["Transformer", "WeightedLayerPooling", "Pooling", "Dense", "Normalize"]
FILES = {
    "modules.json": [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(KINDS)
    ],
    "1_WeightedLayerPooling/config.json": {"word_embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 2},
    "2_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    "3_Dense/config.json": {
        "in_features": 32,
        "out_features": 4,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    },
    "4_Normalize/config.json": {},
    "config_sentence_transformers.json": {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("head") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"output_hidden_states": True}))
    for name, value in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    save_file({"layer_weights": np.ones(2, np.float32)}, folder / "1_WeightedLayerPooling" / "model.safetensors")
    tensors = {"linear.weight": np.ones((4, 32), np.float32), "linear.bias": np.zeros(4, np.float32)}
    save_file(tensors, folder / "3_Dense" / "model.safetensors")
    return folder


def test_the_whole_folder_is_read(folder):
    head = read_head(folder, tiny_config())
    assert (head.width(tiny_config()), head.form.prompt) == (4, "q: ")


@pytest.mark.slow
@fuzz()
@given(data=st.data())
def test_damaged_files(folder, data):
    name = data.draw(st.sampled_from(sorted(FILES)))
    try:
        (folder / name).write_bytes(data.draw(json_text(FILES[name])))
        found, _ = attempt(lambda: read_head(folder, tiny_config()), names=str(folder))
    finally:
        (folder / name).write_text(json.dumps(FILES[name]))
    if found is not None:
        assert 0 < found.width(tiny_config()) <= 32 * 6
