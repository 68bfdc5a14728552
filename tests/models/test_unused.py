"""Weights that are in a folder are used, or the folder is refused; what lies outside the encoder is listed."""

import inspect
import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxwhiten import CrossEncoder, Encoder
from jaxwhiten.errors import ModelError
from jaxwhiten.models import load_model, load_pair_classifier
from jaxwhiten.models.loading import look_at
from tests.conftest import slow_but
from tests.golden.cases import write_checkpoint
from tests.models.test_families import CASES, parity
from tests.models.test_loading import parameters
from tests.tiny import write_cross_encoder

_LAYER = "encoder.layer.0.attention.self"
REFUSED = {  # what a folder of BERT has more -> what the message says
    "a layer beyond the config": ("encoder.layer.2.output.dense.weight", "no place for it"),
    "beside parameters": (f"{_LAYER}.distance_embedding.weight", "no place for it"),
    "beside embeddings": ("embeddings.projection.bias", "no place for it"),
    "a LoRA": (f"{_LAYER}.query.lora_A.default.weight", "adapter"),
    "a LoRA of PEFT": (f"base_model.model.{_LAYER}.query.lora_B.weight", "adapter"),
    "GPTQ": (f"{_LAYER}.query.qweight", "quantized"),
    "AWQ": (f"{_LAYER}.query.scales", "quantized"),
    "bitsandbytes, 4 bits": (f"{_LAYER}.query.weight.absmax", "quantized"),
    "bitsandbytes, 8 bits": (f"{_LAYER}.query.SCB", "quantized"),
    "an adapter's folder": ("", "adapter_config.json: an adapter"),
}
DOORS = (
    load_model,
    load_pair_classifier,
    CrossEncoder.from_pretrained,
    lambda folder: Encoder.from_pretrained(folder, pooling="mean", engine="jax"),
    lambda folder: Encoder.from_pretrained(folder, pooling="mean", engine="openvino"),
    look_at,
)


def add(folder, **tensors):
    file = folder / "model.safetensors"
    save_file(load_file(file) | tensors, file, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A cross-encoder's folder, which encoders load, too: its tensors have the prefix `bert.`."""
    return write_cross_encoder(tmp_path_factory.mktemp("classifier") / "model")


@pytest.mark.parametrize("prefix", ["bert.", ""])
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_folder_at_every_door(classifier, tiny_model, tmp_path, case, prefix):
    name, words = REFUSED[case]
    folder = shutil.copytree(classifier if prefix else tiny_model, tmp_path / "model")
    if name:
        add(folder, **{prefix + name if name.startswith("e") else name: np.ones((2, 2), np.float32)})
    else:
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    for load in DOORS if case == "a LoRA" and prefix else DOORS[:1]:
        with pytest.raises(ModelError, match=words) as raised:
            load(folder)
        assert str(folder) in str(raised.value)


def test_buffers_and_tied_copies_are_ignored_and_other_copies_are_not(tmp_path):
    expected = parameters(write_checkpoint(tmp_path, "t5"))
    words = load_file(tmp_path / "model.safetensors")["shared.weight"]
    buffers = {name: np.ones(6, name) for name in ("int64", "int32", "uint8", "bool")}
    add(tmp_path, **{f"encoder.{name}": value for name, value in buffers.items()})
    add(tmp_path, **{"encoder.rotary.inv_freq": np.ones(3, np.float32), "encoder.embed_tokens.weight": words})
    for found, value in zip(parameters(tmp_path), expected, strict=True):
        np.testing.assert_array_equal(found, value)
    assert look_at(tmp_path)[1] == {}
    add(tmp_path, **{"encoder.embed_tokens.weight": words + np.eye(*words.shape, dtype=np.float32)})
    with pytest.raises(ModelError, match=r"encoder\.embed_tokens\.weight"):
        load_model(tmp_path)


def test_modules_outside_the_encoder_are_listed(tmp_path, tiny_model, classifier):
    assert look_at(tiny_model)[1] == {}
    assert look_at(classifier)[1] == {"classifier": 2}
    shutil.copytree(tiny_model, tmp_path / "masked")  # as transformers writes a masked language model
    file = tmp_path / "masked" / "model.safetensors"
    encoder = {f"bert.{name}": value for name, value in load_file(file).items() if "pooler" not in name}
    one = np.ones(3, np.float32)
    pooler = {"bert.pooler.dense.bias": np.ones(32, np.float32)}  # without its weight
    others = {f"cls.predictions.{name}": one for name in ("bias", "transform.dense.weight")}
    save_file({**encoder, **pooler, **others, "decoder.block.0.weight": one}, file, metadata={"format": "pt"})
    assert look_at(tmp_path / "masked")[1] == {"bert.pooler": 1, "cls": 2, "decoder": 1}
    assert load_model(tmp_path / "masked")[1].pooler is False
    with pytest.raises(ModelError, match="masked: This model has no pooler"):
        Encoder.from_pretrained(tmp_path / "masked", pooling="pooler")


FAMILIES = {CASES[case][0]: case for case in reversed(CASES)}


@pytest.mark.parametrize("base", slow_but(FAMILIES, "ElectraModel"))
def test_every_architecture_of_transformers_loads(tmp_path, base):
    _, transformers = parity()
    module = getattr(transformers, base)
    sizes = CASES[FAMILIES[base]][1]
    file = sys.modules[module.__module__]
    found = {}
    for name, made in vars(file).items():
        ours = inspect.isclass(made) and issubclass(made, transformers.PreTrainedModel) and hasattr(transformers, name)
        if ours and made.config_class is module.config_class and not name.endswith("PreTrainedModel"):
            made(module.config_class(**sizes)).save_pretrained(tmp_path / name)
            load_model(tmp_path / name)
            found[name] = look_at(tmp_path / name)[1]
    assert found.pop(base) == {}
    assert len(found) > 1
    assert all(found[name] for name in found if name.endswith("Classification"))
