"""Exported folders: the same vectors from Encoder and sentence-transformers, files complete, mistakes named."""

import json

from jaxwhiten import Encoder
from jaxwhiten.export import model_card
from jaxwhiten.models import load_model


def test_half_precision_is_half_the_size(tiny_model, tmp_path):
    model, _, folder = load_model(tiny_model)
    sizes = [
        (Encoder.from_module(model, folder).save(tmp_path / dtype, dtype=dtype) / "model.safetensors").stat().st_size
        for dtype in ("float32", "float16")
    ]
    assert sizes[1] < 0.6 * sizes[0]


def test_card(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)
    text = model_card(
        "stsb",
        encoder,
        base_model="tiny: model",
        recipe={"seed": 3, "learning_rate": 2e-5},
        scores={"STS-B test": 81.234},
        before={"STS-B test": 81.3},
    )
    header, body = text.split("---\n")[1:3]
    assert 'base_model: "tiny: model"' in header
    assert "| STS-B test | 81.23 |\n| STS-B test, base model | 81.30 |\n\nTraining made the model worse." in body
    recipe = body.split("```json\n")[1].split("```")[0]
    assert json.loads(recipe) == {"seed": 3, "learning_rate": 2e-5}
    assert "No task was scored" in model_card("x", encoder, base_model="y", recipe={}, scores={}, before={})
