"""Static encoders distilled from a tiny teacher: each step against its definition."""

from collections import Counter

import numpy as np
import pytest

from jaxwhiten import Encoder, normalize
from jaxwhiten.commands import cli
from jaxwhiten.encoding import Vocabulary, distil, distil_static
from jaxwhiten.encoding.phrases import frequent
from jaxwhiten.errors import InputError
from tests.tiny import SENTENCES

CORPUS = [text for text in SENTENCES if text] * 6
# "grey" and "heron" are neighbours far more often than by chance.
BIRDS = [f"{text} {text}" for text in CORPUS * 8] + ["A Grey heron on the street!"] * 12


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def teacher(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="first_last_avg")


@pytest.fixture(scope="module")
def vocabulary(teacher):
    return Vocabulary.read(teacher, CORPUS, sentences=30, contexts=True)


def test_what_is_read(teacher, vocabulary):
    tokens = vocabulary.tokenizer(CORPUS)
    counts = (np.bincount(tokens.flat, minlength=200) + 0.5) * vocabulary.words
    np.testing.assert_allclose(vocabulary.frequencies, counts / counts.sum())
    assert not vocabulary.words[:5].any()  # special tokens
    place = int(tokens.flat[0])
    word = vocabulary.tokenizer.vocabulary[place]
    np.testing.assert_allclose(vocabulary.alone[place], teacher.encode(word), atol=1e-5)
    assert len(vocabulary.targets) == len(vocabulary.sentences.lengths) == 30
    seen = np.bincount(vocabulary.sentences.flat, minlength=200)
    np.testing.assert_array_equal((vocabulary.contexts[:, -1] * vocabulary.words)[5:], (seen * vocabulary.words)[5:])


def test_a_context_is_what_the_teacher_pools(teacher):
    read = Vocabulary.read(teacher, [SENTENCES[0]], sentences=1, contexts=True)
    total, count = read.contexts[:, :-1].sum(axis=0), read.contexts[:, -1].sum()
    np.testing.assert_allclose(total / count, teacher.encode(SENTENCES[0]), atol=1e-5)


def test_rows_are_whitened_by_frequency_and_weigh_by_it(vocabulary):
    static = distil(vocabulary, 8, sif=0.01)
    table, p = static._runner._table, vocabulary.frequencies
    shares = 0.01 / (0.01 + p)
    rows, weights = table / shares[:, None], p * shares
    np.testing.assert_allclose(np.average(rows, axis=0, weights=weights), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(rows, rowvar=False, aweights=weights, ddof=0), np.eye(8), atol=1e-2)
    assert not table[~vocabulary.words].any()
    uniform = distil(vocabulary, 8, sif=None, weighted=False)._runner._table[vocabulary.words]
    np.testing.assert_allclose(np.cov(uniform, rowvar=False, ddof=0), np.eye(8), atol=1e-2)


def test_the_fit_comes_near_the_teacher(teacher, vocabulary):
    pairs = [
        f"{first} {second}" for first in CORPUS[:9] for second in CORPUS[:9]
    ]  # more than the teacher has dimensions
    vocabulary = Vocabulary.read(teacher, pairs, sentences=len(pairs))
    target = teacher.encode(pairs)

    def agreement(static):
        x = static.encode(pairs)
        return np.corrcoef((x @ x.T).ravel(), np.corrcoef(target).ravel())[0, 1]

    plain, mapped, moved = (agreement(distil(vocabulary, 16, fit=fit)) for fit in (None, "map", "rows"))
    assert moved > mapped > plain, (moved, mapped, plain)
    assert not distil(vocabulary, 16, fit="rows")._runner._table[~vocabulary.words].any()


def test_the_other_steps(vocabulary):
    plain = distil(vocabulary, 8).encode(SENTENCES)
    for how in ({"contexts": True}, {"sentence_gamma": 0.5}, {"gamma": 0.0}, {"weighted": False}):
        found = distil(vocabulary, 8, **how).encode(SENTENCES)
        assert found.shape == plain.shape
        assert not np.allclose(found, plain, atol=1e-3)


def test_the_teacher_reads_sentences_once(teacher, monkeypatch):
    targets = Vocabulary.read(teacher, CORPUS, sentences=20).targets
    again = Vocabulary.read(teacher, CORPUS, sentences=20)
    monkeypatch.setattr(Encoder, "encode_stream", None)
    np.testing.assert_array_equal(again.targets, targets)
    np.testing.assert_allclose(targets, normalize(teacher.encode(again.drawn)), atol=1e-6)


def test_words_and_phrases_join_the_vocabulary(teacher, tmp_path):
    plain = Vocabulary.read(teacher, BIRDS, sentences=2000)
    found = frequent(BIRDS, plain.tokenizer, 300, 9)
    words = Counter(" ".join(BIRDS).lower().replace(".", "").replace(",", "").replace("!", "").split())
    assert found[-1] == "grey heron"
    assert len(plain.tokenizer([found[0], found[-2]]).flat) >= 4
    assert words[found[0]] >= words[found[1]] >= words[found[-2]]
    assert "grey heron" not in frequent(BIRDS[:-8], plain.tokenizer, 300, 9)
    more = Vocabulary.read(teacher, BIRDS, sentences=2000, contexts=True).joined_by(BIRDS, words=1, phrases=9)
    assert more.tokenizer.vocabulary[200:] == [found[0], "grey heron"]
    np.testing.assert_allclose(more.alone[200:], teacher.encode([found[0], "grey heron"]), atol=1e-5)
    counts = more.frequencies[200:] / more.frequencies[plain.words.argmax()]
    tokens = np.bincount(more.tokenizer(BIRDS).flat, minlength=202) + 0.5
    np.testing.assert_allclose(counts, tokens[200:] / tokens[plain.words.argmax()])
    assert tokens[201] == 12.5
    static = distil(more, 8, fit="rows", contexts=True)
    back = Encoder.from_pretrained(static.save(tmp_path / "more"))
    texts = ["Grey herons.", "The grey heron", *SENTENCES]
    np.testing.assert_array_equal(back.encode(texts), static.encode(texts))
    assert len(back.tokenizer(["grey heron"]).flat) == 1
    library = pytest.importorskip("model2vec")
    np.testing.assert_allclose(
        library.StaticModel.from_pretrained(tmp_path / "more").encode(texts), back.encode(texts), atol=1e-6
    )


def test_what_was_read_without_its_corpus_is_what_is_read_without_one(teacher, vocabulary):
    found, wanted = vocabulary.without_corpus(), Vocabulary.read(teacher)
    for name in ("frequencies", "alone", "contexts", "words"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert found.drawn == wanted.drawn == []


def test_without_a_corpus(teacher):
    static = distil_static(teacher, k=8, show_progress=False)
    read = Vocabulary.read(teacher)
    words = read.frequencies[read.words]
    np.testing.assert_allclose(words[:-1] / words[1:], np.arange(2, len(words) + 1) / np.arange(1, len(words)))
    assert static.encode(SENTENCES).shape == (len(SENTENCES), 8)
    for how, message in (
        ({"fit": "rows"}, "need a corpus"),
        ({"sentence_gamma": 1.0}, "need a corpus"),
        ({"fit": "row"}, "Did you mean 'rows'"),
        ({"sif": 0.0}, "above 0"),
        ({"k": 999}, "from 1 to the 32 columns"),
    ):
        with pytest.raises(InputError, match=message):
            distil(read, **how)
    with pytest.raises(InputError, match="need a corpus to be found in"):
        read.joined_by(CORPUS, words=3)
    with pytest.raises(InputError, match="no tokens to count"):
        Vocabulary.read(teacher, [""])


def test_the_command(tiny_model, tmp_path, capsys):
    (tmp_path / "c.txt").write_text("\n".join(CORPUS))
    model = ["--model", str(tiny_model), "--pooling", "mean"]
    options = ["--corpus", str(tmp_path / "c.txt"), "-k", "8", "--sentences", "60", "--half", "--words", "2"]
    assert cli.main(["distil-static", *model, *options, "-o", str(tmp_path / "static")]) == 0
    assert "8 dimensions" in capsys.readouterr().err
    static = Encoder.from_pretrained(tmp_path / "static")
    assert static.encode(SENTENCES).shape == (len(SENTENCES), 8)
    assert static.config.vocab_size == 202
    assert cli.main(["distil-static", *model, "--fit", "rows", "-o", str(tmp_path / "x")]) != 0
    assert "give --corpus FILE" in capsys.readouterr().err
    assert cli.main(["distil-static", *model, *options[:2], "--sentences", "0", "-o", str(tmp_path / "x")]) != 0
    assert cli.main(["distil-static", *model, "--words", "2", "-o", str(tmp_path / "x")]) != 0
    assert "found in a corpus" in capsys.readouterr().err
