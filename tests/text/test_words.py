"""The table of words gives the tokens that the tokenizer gives, whatever the text."""

import json
import random
import sys

import numpy as np
import pytest

from jaxwhiten.text import BulkTokenizer, words
from tests.conftest import slow_but
from tests.tiny import SENTENCES

PARTS = [
    *["Guitar", "street", "1984", "a", "CAFÉ", "naïve", "e\u0301", "İx", "ẞ", "ΣΑΣ", "語", "한국", "ﬁ", "½", "°C"],
    "x" * 120,
    "  ",
]
PARTS += " \t\n\u00a0\u2028\u200b\x00\x7f\ufffd–“’_$+!🎸"
PARTS += ["[MASK]", "[CLS]", "[", "]", "##a", "\u0600", "\U00010400"]


def same(tokenizer, texts):
    found, expected = tokenizer(texts), tokenizer._encoded(tokenizer._tokenizer, texts)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_array_equal(found.flat, expected.flat)
    assert found.flat.dtype == expected.flat.dtype


@pytest.fixture
def tokenizer(tiny_model):
    return BulkTokenizer(tiny_model, 20, special_tokens=False)


def changed(folder, tmp_path, **parts):
    raw = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw | parts))
    return BulkTokenizer(tmp_path, 20, special_tokens=False)


@pytest.mark.parametrize("lower", slow_but([True, False], True))
def test_any_text(tiny_model, tmp_path, lower):
    raw = json.loads((tiny_model / "tokenizer.json").read_text())
    tokenizer = changed(tiny_model, tmp_path, normalizer=raw["normalizer"] | {"lowercase": lower})
    draw = random.Random(0)
    texts = ["".join(draw.choices([*PARTS, *" ".join(SENTENCES).split()], k=draw.randrange(12))) for _ in range(4000)]
    assert isinstance(tokenizer._table, words.WordTable)
    characters = [f"a{chr(i)}man {chr(i)} {chr(i)}{chr(i)}" for i in range(0x3000)]
    for block in ([], ["", "Short."], texts[:1500], texts[1500:], ["語 [MASK]"], characters):
        same(tokenizer, block)


def test_a_full_table_begins_anew(tokenizer, monkeypatch):
    same(tokenizer, SENTENCES)
    monkeypatch.setattr(words, "_MOST", tokenizer._table._bytes)
    same(tokenizer, SENTENCES)
    assert len(tokenizer._table._numbers) > 1
    same(tokenizer, ["A word not seen before."])
    assert len(tokenizer._table._numbers) == 1
    same(tokenizer, SENTENCES)


def test_long_words_do_not_fill_the_memory(tokenizer, monkeypatch):
    """It is their bytes that are bounded, not their number."""
    monkeypatch.setattr(words, "_MOST", 1 << 20)
    for start in range(0, 100, 10):
        tokenizer([f"{number}" + "x" * 20_000 for number in range(start, start + 10)])
        table = tokenizer._table
        assert sum(map(sys.getsizeof, table._numbers)) + table._known.flat.nbytes <= words._MOST


def test_other_tokenizers_have_no_table(tiny_model, tokenizer, tmp_path):
    assert BulkTokenizer(tiny_model, 20)._table is None
    assert changed(tiny_model, tmp_path, pre_tokenizer={"type": "Whitespace"})._table is None
    raw = json.loads((tiny_model / "tokenizer.json").read_text())
    word = raw["added_tokens"][0] | {"id": 200, "content": "two dogs", "special": False, "normalized": True}
    joined = changed(tiny_model, tmp_path, added_tokens=[*raw["added_tokens"], word])
    assert joined._table is None
    assert joined.vocabulary[joined(["A Guitar, two dogs"]).flat[-1]] == "two dogs"
