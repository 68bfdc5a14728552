"""Sentences become tokens of the model, cut as it wants them, and no others."""

import json
import random
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from jaxwhiten.errors import ModelError
from jaxwhiten.text import BulkTokenizer, TextForm, tokenization
from tests.tiny import SENTENCES


def test_a_token_is_the_mask_if_it_is_special(tiny_model, tmp_path):
    Tokenizer(models.WordLevel({"[UNK]": 0, "[MASK]": 1}, "[UNK]")).save(str(tmp_path / "tokenizer.json"))
    assert BulkTokenizer(tmp_path, 16).mask_token_id is None
    mask = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).token_to_id("[MASK]")
    assert BulkTokenizer(tiny_model, 16).mask_token_id == mask


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("form", [TextForm(), TextForm("query: "), TextForm(lower_case=True)])
def test_the_excerpt_of_a_long_text_has_its_tokens(tiny_model, tmp_path, monkeypatch, side, form):
    """The middle of a word, of a run of spaces or of characters of several bytes may be where it is cut."""
    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))
    tokenizer = BulkTokenizer(tmp_path, 12)
    rng = random.Random(0)
    words = [*" ".join(SENTENCES).split(), "x" * 150, " " * 30, "ﬁ", "é", "中文字", "\n"]
    for _ in range(20):
        text = " ".join(rng.choices(words, k=rng.choice([3, 300, 3000])))
        excerpt = tokenizer.excerpt(text, form)
        assert len(excerpt) <= max(64 * 12, len(text) // 2)
        np.testing.assert_array_equal(tokenizer([excerpt], form).flat, tokenizer([text], form).flat)
    short = tokenizer.excerpt(" " * 2000 + "end" + " " * 2000, form)
    np.testing.assert_array_equal(tokenizer([short], form).flat, tokenizer(["end"], form).flat)
    monkeypatch.setattr(tokenization, "_MOST_CHARACTERS", 10_000)
    assert tokenizer.excerpt(" " * 20_000, form) is None


@pytest.mark.parametrize(
    ("change", "texts", "words"),
    [
        (lambda raw: raw["model"]["vocab"].pop("[UNK]"), ["ホワイトニング"], "model"),
        (lambda raw: raw["model"]["vocab"].update(guitar=100_000), ["the guitar plays"], "token"),
    ],
)
def test_a_word_that_has_no_token_of_the_model_is_refused(tiny_model, tmp_path, change, texts, words):
    """An embedding looked up beyond its end is NaN or another token's, without a word."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    raw = json.loads((folder / "tokenizer.json").read_text())
    change(raw)
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(ModelError, match=words):
        BulkTokenizer(folder, 32, model_vocab=200)(texts)
