"""Sentences written and cut as poolings want them, and counted."""

import json
import random
import shutil

import numpy as np
import pytest

from jaxwhiten.errors import ModelError
from jaxwhiten.text import BulkTokenizer, TextForm, TokenIds, tokenization
from tests.tiny import SENTENCES


def plain(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def rows(tokens):
    return [list(tokens.flat[s : s + n]) for s, n in zip(tokens.starts, tokens.lengths, strict=True)]


def test_lower_case(tiny_model):
    tokenizer = BulkTokenizer(tiny_model, 32)
    upper = [s.upper() for s in SENTENCES]
    assert rows(tokenizer(upper, TextForm(lower_case=True))) == rows(tokenizer([s.lower() for s in upper]))


def test_a_token_is_the_mask_if_it_is_special(tiny_model, tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"[UNK]": 0, "[MASK]": 1}, "[UNK]")).save(str(tmp_path / "tokenizer.json"))
    assert BulkTokenizer(tmp_path, 16).mask_token_id is None
    assert BulkTokenizer(tiny_model, 16).mask_token_id == plain(tiny_model).token_to_id("[MASK]")


@pytest.mark.parametrize("side", ["Left", "Right"])
def test_padding_of_the_file_takes_no_part(tiny_model, tmp_path, side):
    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    padding = {"strategy": {"Fixed": 30}, "direction": side, "pad_to_multiple_of": None, "pad_type_id": 0}
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    raw["padding"] = {**padding, "pad_id": 0, "pad_token": "[PAD]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    assert rows(BulkTokenizer(tmp_path, 64)(SENTENCES)) == [plain(tiny_model).encode(s).ids for s in SENTENCES]


def test_padded_rows_hold_their_own_ids_and_no_others():
    ids = TokenIds(np.arange(10, 16, dtype=np.int32), np.array([2, 3, 1]))
    matrix = ids.padded(np.array([1, 0, 2]), height=4, length=3, pad_id=7)
    np.testing.assert_array_equal(matrix, [[12, 13, 14], [10, 11, 7], [15, 7, 7], [7, 7, 7]])


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
