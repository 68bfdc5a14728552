"""The token cache: the tokenizer's own ids, read back from disk, made again when data or length change."""

import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.text.tokenization import BulkTokenizer
from jaxwhiten.training.sentences import tokenize_columns
from tests.conftest import own_cache
from tests.tiny import SENTENCES

COLUMNS = [SENTENCES[:6], [SENTENCES[i] for i in (7, 0, 0, 9, 3, 1)]]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))


def test_rows_are_the_tokenizers_ids(tiny_model, tmp_path):
    tokenizer = BulkTokenizer(tiny_model, 16)
    table = tokenize_columns(COLUMNS, tokenizer)
    assert len(table.sentences) == 6
    assert len(table.tokens.lengths) == len({text for column in COLUMNS for text in column}), "kept once each"
    batch = table.batch(np.array([4, 1]), 16)
    assert batch["input_ids"].shape == (2, 2, 16)
    for i, row in enumerate((4, 1)):
        for j, column in enumerate(COLUMNS):
            expected = tokenizer([column[row]]).flat
            assert batch["lengths"][i, j] == len(expected)
            np.testing.assert_array_equal(batch["input_ids"][i, j, : len(expected)], expected)
            assert not batch["input_ids"][i, j, len(expected) :].any()
    assert table.lengths.tolist() == [max(len(tokenizer([column[row]]).flat) for column in COLUMNS) for row in range(6)]


def test_the_second_time_nothing_is_tokenized(tiny_model, tmp_path, monkeypatch):
    first = tokenize_columns(COLUMNS, BulkTokenizer(tiny_model, 16))
    monkeypatch.setattr(BulkTokenizer, "__call__", lambda *_: pytest.fail("tokenized again"))
    second = tokenize_columns(COLUMNS, BulkTokenizer(tiny_model, 16))
    assert isinstance(second.tokens.flat, np.memmap)
    np.testing.assert_array_equal(first.tokens.flat, second.tokens.flat)
    np.testing.assert_array_equal(first.sentences, second.sentences)


def test_key_follows_data_and_length(tiny_model, tmp_path):
    keys = {
        tokenize_columns(columns, BulkTokenizer(tiny_model, length)).key
        for columns, length in [(COLUMNS, 16), (COLUMNS, 12), (COLUMNS[::-1], 16), ([COLUMNS[0]], 16)]
    }
    assert len(keys) == 4


@pytest.mark.parametrize(("columns", "words"), [([["a"], ["b", "c"]], "one length"), ([[]], "one row")])
def test_mistakes_are_named(tiny_model, columns, words):
    with pytest.raises(InputError, match=words):
        tokenize_columns(columns, BulkTokenizer(tiny_model, 16))
