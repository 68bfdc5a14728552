"""tokenizer.json from strangers: token ids that the model has, no longer than asked for, or a ModelError."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten import Encoder
from jaxwhiten.errors import ModelError
from jaxwhiten.text.tokenization import BulkTokenizer
from tests.fuzz.common import attempt, fuzz, json_text
from tests.tiny import SENTENCES, write_model, write_tokenizer

LENGTH, ROWS = 16, 200


def other_kinds():
    """A byte-level BPE, a Unigram and a word-level tokenizer of a few entries."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    bpe = Tokenizer(models.BPE({**letters, "th": 27, "the": 28}, [("t", "h"), ("th", "e")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("a", -2.0), ("t", -2.5)], 0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    words = Tokenizer(models.WordLevel({"a": 0, "the": 1, "[UNK]": 2}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return [json.loads(tokenizer.to_str()) for tokenizer in (bpe, unigram, words)]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    write_tokenizer(folder)
    return [json.loads((folder / "tokenizer.json").read_text()), *other_kinds()]


@fuzz()
@given(data=st.data())
def test_damaged_tokenizer(kinds, tmp_path, data):
    kind = data.draw(st.sampled_from(range(len(kinds))))
    (tmp_path / "tokenizer.json").write_bytes(data.draw(json_text(kinds[kind])))

    def read():
        return BulkTokenizer(tmp_path, LENGTH, model_vocab=ROWS)(SENTENCES)

    found, _ = attempt(read, names=str(tmp_path))
    if found is not None:
        assert len(found.lengths) == len(SENTENCES)
        assert found.lengths.max() <= LENGTH
        assert found.lengths.sum() == len(found.flat)
        assert not len(found.flat) or 0 <= found.flat.min() <= found.flat.max() < ROWS


def edited(folder, change):
    raw = json.loads((folder / "tokenizer.json").read_text())
    change(raw)
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    return folder


def word_beyond(raw):
    raw["model"]["vocab"]["guitar"] = 100_000


def special_beyond(raw):
    raw["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [100_000]


def special_beyond_int32(raw):
    raw["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [2**32 - 1]


def too_many_specials(raw):
    raw["post_processor"]["special_tokens"]["[CLS]"] |= {"ids": [2] * 50, "tokens": ["[CLS]"] * 50}


def test_ids_the_model_has_no_row_for_are_refused(tmp_path):
    """An embedding looked up beyond its end is NaN or another token's, without a word."""
    folder = edited(write_model(tmp_path / "model"), word_beyond)
    with pytest.raises(ModelError, match=r"model.*token"):
        Encoder.from_pretrained(folder, pooling="mean", max_length=32).encode(["the guitar plays", "guitar"])


@pytest.mark.parametrize("change", [special_beyond, special_beyond_int32, too_many_specials])
def test_special_tokens_are_those_of_the_class(tmp_path, change):
    """As in transformers, whose class has a template of its own."""
    whole, other = write_model(tmp_path / "whole"), edited(write_model(tmp_path / "model"), change)
    expected, vectors = (
        Encoder.from_pretrained(folder, pooling="mean", max_length=32).encode(["the guitar plays"])
        for folder in (whole, other)
    )
    np.testing.assert_array_equal(vectors, expected)


def test_a_word_without_an_entry_and_no_unknown_token(tmp_path):
    folder = edited(write_model(tmp_path / "model"), lambda raw: raw["model"]["vocab"].pop("[UNK]"))
    with pytest.raises(ModelError, match="model"):
        BulkTokenizer(folder, 32)(["ホワイトニング"])


def test_sentences_without_a_token_have_finite_vectors(tmp_path):
    folder = edited(write_model(tmp_path / "model"), lambda raw: raw.update(post_processor=None))
    vectors = Encoder.from_pretrained(folder, pooling="mean", max_length=32).encode(["", "a man"])
    assert np.isfinite(vectors).all()
