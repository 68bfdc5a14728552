"""Exported folders: the same vectors from Encoder and sentence-transformers, files complete, mistakes named."""

import json

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.export import model_card
from jaxwhiten.models import load_model
from tests.tiny import SENTENCES


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_equal_those_of_encoder_and_sentence_transformers(tiny_model, tmp_path, pooling):
    library = pytest.importorskip("sentence_transformers")
    model, _, folder = load_model(tiny_model)
    out = Encoder(model, folder, pooling=pooling, max_length=24).save(tmp_path / "out")
    before = Encoder.from_pretrained(tiny_model, pooling=pooling, max_length=24).encode(SENTENCES)
    encoder = Encoder.from_pretrained(out, pooling="auto", max_length=24)
    assert encoder.pooling == pooling
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)
    peer = library.SentenceTransformer(str(out), device="cpu")
    assert peer.max_seq_length == 24
    np.testing.assert_allclose(peer.encode(SENTENCES), before, atol=1e-5)


def test_files(tiny_model, tmp_path):
    model, _, folder = load_model(tiny_model)
    out = Encoder(model, folder).save(tmp_path / "out", card="text\n")
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names >= {"modules.json", "1_Pooling/config.json", "model.safetensors", "config.json", "tokenizer.json"}
    assert (out / "README.md").read_text() == "text\n"
    tokenizers = [json.loads((place / "tokenizer.json").read_text()) for place in (out, folder)]
    assert tokenizers[0]["model"] == tokenizers[1]["model"]


def test_half_precision_is_half_the_size(tiny_model, tmp_path):
    model, _, folder = load_model(tiny_model)
    sizes = [
        (Encoder(model, folder).save(tmp_path / dtype, dtype=dtype) / "model.safetensors").stat().st_size
        for dtype in ("float32", "float16")
    ]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_pooling_the_folder_cannot_say_is_refused_before_anything_is_written(tiny_model, tmp_path):
    model, _, folder = load_model(tiny_model)
    with pytest.raises(InputError, match="first_last_avg"):
        Encoder(model, folder, pooling="pooler").save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


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
