"""A corpus on disk: the same tokens however it is stored, stopped and resumed; blocks cut where they should be."""

import gzip

import numpy as np
import pytest

from jaxwhiten.datasets import Corpus, corpus_files
from jaxwhiten.errors import DataError, DataNotFoundError
from jaxwhiten.text.tokenization import BulkTokenizer
from tests.tiny import SENTENCES
from train import corpus
from train.corpus import held_out, tokenize_corpus

WORDS = " ".join(SENTENCES).split()


def passages(count=400, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 30))) for _ in range(count)]


def write(path, lines):
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "PART_PASSAGES", 64)


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


def flat(stream):
    return np.concatenate(stream.parts)


def test_tokens_are_the_passages_one_after_the_other(text, tiny_model):
    corpus = read(text, tiny_model)
    for stream, side in ((corpus.train, False), (corpus.held_out, True)):
        chosen = [line for line in passages() if held_out(line, 0.2) == side]
        tokens = BulkTokenizer(tiny_model, 1000)(chosen)
        expected = np.concatenate(
            [tokens.flat[s + 1 : s + n] for s, n in zip(tokens.starts, tokens.lengths, strict=True)]
        )
        np.testing.assert_array_equal(flat(stream), expected)
        assert stream.tokens == len(expected)
    assert corpus.passages[0] + corpus.passages[1] == 400
    assert 40 < corpus.passages[1] < 120
    assert flat(corpus.train).dtype == np.uint16


def test_blocks_are_cut_from_each_part(text, tiny_model):
    stream = read(text, tiny_model).train
    expected = [
        [stream.first, *part[start : start + 15]] for part in stream.parts for start in range(0, len(part) - 14, 15)
    ]
    assert len(stream.parts) == 7
    assert len(stream) == len(expected)
    order = np.random.default_rng(0).permutation(len(stream))
    np.testing.assert_array_equal(stream.blocks(order), np.array(expected)[order])
    assert stream.blocks(order).dtype == np.int32


def test_a_repeated_passage_is_on_one_side(tiny_model, tmp_path):
    lines = passages(60)
    write(tmp_path / "t.txt", lines * 4)
    one = write(tmp_path / "once.txt", lines)
    four = read(tmp_path / "t.txt", tiny_model)
    assert four.passages == tuple(4 * n for n in read(one, tiny_model).passages)


def test_kept_and_read_back(text, tiny_model, tmp_path, monkeypatch):
    first = read(text, tiny_model)
    monkeypatch.setattr(corpus, "_tokens", lambda *_: pytest.fail("tokenised again"))
    again = read(text, tiny_model)
    np.testing.assert_array_equal(flat(first.train), flat(again.train))
    assert (first.key, first.passages) == (again.key, again.passages)


def test_what_a_stopped_run_has_written_is_not_done_again(text, tiny_model, tmp_path, monkeypatch):
    tokens, calls = corpus._tokens, []

    def stopping(tokenizer, chosen, dtype):
        if len(calls) == 7:
            raise KeyboardInterrupt
        calls.append(len(chosen))
        return tokens(tokenizer, chosen, dtype)

    monkeypatch.setattr(corpus, "_tokens", stopping)
    with pytest.raises(KeyboardInterrupt):
        read(text, tiny_model)
    monkeypatch.setattr(corpus, "_tokens", lambda *arguments: calls.append(0) or tokens(*arguments))
    resumed = read(text, tiny_model)
    assert len(calls) == 14  # seven parts with two sides, each once
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "other"))
    whole = read(text, tiny_model)
    np.testing.assert_array_equal(flat(resumed.train), flat(whole.train))
    assert resumed.passages == whole.passages


def test_a_part_cut_short_is_written_again(text, tiny_model, tmp_path):
    first = read(text, tiny_model)
    expected = flat(first.train)
    part = next((tmp_path / "cache" / "corpora" / first.key).glob("train-000003.npy"))
    part.write_bytes(part.read_bytes()[:-40])
    np.testing.assert_array_equal(flat(read(text, tiny_model).train), expected)


def test_bad_lines(text, tiny_model):
    with (text / "a.txt").open("ab") as file:
        file.write(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"a\.txt, line 151: not UTF-8"):
        read(text, tiny_model)
    corpus = tokenize_corpus(Corpus(corpus_files(text), skip_bad_rows=True), tiny_model, 16, held_out_share=0.2)
    assert corpus.skipped == 1


def test_files(text):
    assert [file.name for file in corpus_files(text)] == ["a.txt", "b.txt.gz"]
    assert [file.name for file in corpus_files(text / "*.gz")] == ["b.txt.gz"]
    with pytest.raises(DataNotFoundError, match="no such file"):
        corpus_files(text / "none*")
