"""A corpus as tokens: the same however it is stored; blocks cut where they should be."""

import gzip

import numpy as np
import pytest

from eval.data.corpus import Corpus
from jaxwhiten.datasets import corpus_files
from jaxwhiten.text.tokenization import BulkTokenizer
from tests.tiny import SENTENCES
from train.corpus import held_out, tokenize_corpus

WORDS = " ".join(SENTENCES).split()


def passages(count=400, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 30))) for _ in range(count)]


def write(path, lines):
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    lines = passages()
    write(folder / "a.txt", lines[:150])
    write(folder / "b.txt.gz", ["", *lines[150:], "   "])
    (folder / "notes.md").write_text("not text to train on")
    return folder


def read(text, model, **changes):
    settings = {"held_out_share": 0.2, "progress": False}
    files = corpus_files(text)
    return tokenize_corpus(Corpus(files), model, 16, **{**settings, **changes})


def test_tokens_are_the_passages_one_after_the_other(text, tiny_model):
    corpus = read(text, tiny_model)
    for stream, side in ((corpus.train, False), (corpus.held_out, True)):
        chosen = [line for line in passages() if held_out(line, 0.2) == side]
        tokens = BulkTokenizer(tiny_model, 1000)(chosen)
        expected = np.concatenate(
            [tokens.flat[s + 1 : s + n] for s, n in zip(tokens.starts, tokens.lengths, strict=True)]
        )
        np.testing.assert_array_equal(stream.flat, expected)
    assert corpus.passages[0] + corpus.passages[1] == 400
    assert 40 < corpus.passages[1] < 120
    assert corpus.train.flat.dtype == np.uint16


def test_blocks_are_cut_one_after_the_other(text, tiny_model):
    stream = read(text, tiny_model).train
    expected = [[stream.first, *stream.flat[start : start + 15]] for start in range(0, len(stream.flat) - 14, 15)]
    assert len(stream) == len(expected)
    order = np.random.default_rng(0).permutation(len(stream))
    np.testing.assert_array_equal(stream.blocks(order), np.array(expected)[order])
    assert stream.blocks(order).dtype == np.int32
