"""Text for masked language models: passages as tokens, and whole words masked, nothing special touched."""

import gzip

import numpy as np
import pytest
from tokenizers import Tokenizer

from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.text import BulkTokenizer
from tests.sentences import generated
from train.corpus import held_out, tokenize_corpus
from train.masking import mask_blocks, mask_rules


def test_tokens_are_the_passages_one_after_the_other_in_blocks(tiny_model, tmp_path):
    lines = generated(400)
    (tmp_path / "a.txt").write_text("\n".join(lines[:150]))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(["", *lines[150:], "   "]).encode()))
    (tmp_path / "notes.md").write_text("not text to train on")
    corpus = tokenize_corpus(Corpus(corpus_files(tmp_path)), tiny_model, 16, held_out_share=0.2, progress=False)
    for stream, side in ((corpus.train, False), (corpus.held_out, True)):
        tokens = BulkTokenizer(tiny_model, 1000)([line for line in lines if held_out(line, 0.2) == side])
        ends = zip(tokens.starts, tokens.lengths, strict=True)
        expected = np.concatenate([tokens.flat[start + 1 : start + length] for start, length in ends])
        np.testing.assert_array_equal(stream.flat, expected)
    assert sum(corpus.passages) == 400
    assert 40 < corpus.passages[1] < 120
    blocks = corpus.train.blocks(np.array([3, 0]))
    assert (blocks[:, 0] == corpus.train.first).all()
    np.testing.assert_array_equal(blocks[:, 1:], corpus.train.flat[: 4 * 15].reshape(4, 15)[[3, 0]])


def words_of(row, names):
    """Positions of each word of a block, told in plain Python."""
    groups = []
    for position, token in enumerate(row):
        if token < 5:
            continue
        if groups and names[token].startswith("##") and groups[-1][-1] == position - 1:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_whole_words_are_masked_up_to_the_share(tiny_model, share):
    vocabulary = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).get_vocab()
    names = sorted(vocabulary, key=vocabulary.get)  # 2 begins blocks, 3 ends passages, 4 is the mask
    rng = np.random.default_rng(0)
    ids = rng.integers(5, len(names), (200, 40)).astype(np.int32)
    ids[rng.random(ids.shape) < 0.05] = 3
    ids[:, 0] = 2
    out = mask_blocks(ids, mask_rules(tiny_model, share=share), np.random.default_rng(1))
    assert out["positions"].shape == (200, round(share * 40))
    np.testing.assert_array_equal(out["targets"], np.take_along_axis(ids, out["positions"], 1))
    for row, positions, weights, shown in zip(ids, out["positions"], out["weights"], out["input_ids"], strict=True):
        chosen = sorted(positions[weights > 0])
        words = words_of(row, names)
        assert chosen == [position for word in words if word[0] in chosen for position in word]
        assert np.isin(np.flatnonzero(shown != row), chosen).all(), "nothing else changes"
        budget = round(share * sum(map(len, words)))
        assert budget - max(map(len, words)) < len(chosen) <= budget
