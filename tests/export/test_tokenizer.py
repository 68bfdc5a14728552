"""Every folder that is written holds a tokenizer that cuts where the encoder does, and pads nothing."""

import json
import random
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer

from jaxwhiten import CrossEncoder, Encoder
from jaxwhiten.encoding import distil_static
from jaxwhiten.export import save_onnx, save_trained
from tests.conftest import slow_but
from tests.tiny import SENTENCES, write_cross_encoder

LONGEST = 40
PROMPTS = {"query": "Music: ", "document": "salt "}


@pytest.fixture(scope="module")
def paragraphs():
    """300 texts, most of them longer than the encoder reads."""
    words, rng = " ".join(SENTENCES).split(), random.Random(0)
    return [" ".join(rng.choices(words, k=rng.randint(5, 60))) for _ in range(300)]


@pytest.fixture(scope="module")
def encoder(tiny_model, tmp_path_factory):
    """Of a folder whose tokenizer, like MiniLM's, truncates and pads to a length of its own."""
    folder = shutil.copytree(tiny_model, tmp_path_factory.mktemp("source") / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))
    return Encoder.from_pretrained(folder, pooling="mean", max_length=LONGEST, prompts=PROMPTS, device="cpu:0")


def cross(folder, encoder, texts):
    CrossEncoder.from_pretrained(write_cross_encoder(folder.parent / "pairs"), max_length=LONGEST).save(folder)


NOTHING = {"base_model": "base", "recipe": {}, "scores": {}, "before": {}}
FOLDERS = {
    "trained": lambda folder, encoder, texts: save_trained(folder, encoder, **NOTHING),
    "onnx": lambda folder, encoder, texts: save_onnx(folder, encoder),
    "static": lambda folder, encoder, texts: distil_static(encoder, texts, 8).save(folder),
    "cross": cross,
}


@pytest.mark.parametrize("kind", slow_but(FOLDERS, "onnx", "cross"))
def test_a_written_tokenizer_cuts_where_the_encoder_does(encoder, paragraphs, tmp_path, kind):
    pytest.importorskip("onnx")
    FOLDERS[kind](tmp_path / "out", encoder, paragraphs)
    tokenizer, static = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")), kind == "static"
    found = [encoding.ids for encoding in tokenizer.encode_batch(paragraphs)]
    longest = 1 << 20 if static else LONGEST
    assert (tokenizer.padding, tokenizer.truncation["max_length"]) == (None, longest)
    assert max(map(len, found)) > 100 if static else max(map(len, found)) == LONGEST
    if kind == "cross":
        ours = CrossEncoder.from_pretrained(tmp_path / "out", device="cpu:0").tokenizer
    else:
        again = encoder if kind == "onnx" else Encoder.from_pretrained(tmp_path / "out", device="cpu:0")
        ours = again.view.core.tokenizer
    assert ours.max_length == longest
    np.testing.assert_array_equal(np.concatenate(found), ours(paragraphs).flat)
    if not static:
        assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["model_max_length"] == LONGEST
    if kind not in ("cross", "static"):
        saved = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
        assert saved["prompts"] == PROMPTS
