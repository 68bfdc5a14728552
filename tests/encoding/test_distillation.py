"""Static encoders distilled from a tiny teacher: each step against its definition."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import load_file

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import Vocabulary, distil, distil_static, distillation
from jaxwhiten.errors import InputError
from tests.conftest import own_cache
from tests.sentences import generated
from tests.tiny import SENTENCES

CORPUS = generated(340)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def teacher(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="first_last_avg")


@pytest.fixture(scope="module")
def vocabulary(teacher):
    return Vocabulary.read(teacher, CORPUS, sentences=320)


def test_what_is_read(teacher, vocabulary):
    tokens = vocabulary.tokenizer(CORPUS)
    counts = (np.bincount(tokens.flat, minlength=200) + 0.5) * vocabulary.words
    np.testing.assert_allclose(vocabulary.frequencies, counts / counts.sum())
    assert not vocabulary.words[:5].any()  # special tokens
    place = int(tokens.flat[0])
    word = vocabulary.tokenizer.vocabulary[place]
    np.testing.assert_allclose(vocabulary.alone[place], teacher.encode(word), atol=1e-5)
    assert len(vocabulary.targets) == len(vocabulary.sentences.lengths) == 320


def test_rows_are_whitened_by_frequency_and_weigh_by_it(vocabulary):
    static = distil(vocabulary, 8)
    table, p = static.view.core.engine.table, vocabulary.frequencies
    shares = distillation.SIF / (distillation.SIF + p)
    rows, weights = table / shares[:, None], p * shares
    np.testing.assert_allclose(np.average(rows, axis=0, weights=weights), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(rows, rowvar=False, aweights=weights, ddof=0), np.eye(8), atol=1e-2)
    assert not table[~vocabulary.words].any()


def test_the_fit_comes_near_the_teacher(teacher, monkeypatch):
    texts = generated(320)  # more than the teacher has dimensions
    vocabulary = Vocabulary.read(teacher, texts, sentences=len(texts))
    target = teacher.encode(texts)

    def agreement(static):
        x = static.encode(texts)
        return np.corrcoef((x @ x.T).ravel(), np.corrcoef(target).ravel())[0, 1]

    plain, moved = (agreement(distil(vocabulary, 16, fit=fit)) for fit in (False, True))
    with monkeypatch.context() as patch:
        patch.setattr(distillation, "_STEPS", 0)  # of conjugate gradients: the linear map alone
        mapped = agreement(distil(vocabulary, 16, fit=True))
    assert moved > mapped > plain, (moved, mapped, plain)
    assert not distil(vocabulary, 16, fit=True).view.core.engine.table[~vocabulary.words].any()


@pytest.mark.filterwarnings("always:The corpus is ignored")
@pytest.mark.parametrize("corpus", [CORPUS[:150], CORPUS[:1] * 500])
def test_a_corpus_of_few_sentences_is_ignored_and_says_so(teacher, corpus):
    with pytest.warns(UserWarning, match="corpus is ignored: .* different sentences, fewer than 300"):
        found = Vocabulary.read(teacher, corpus)
    wanted = Vocabulary.read(teacher)
    np.testing.assert_array_equal(found.frequencies, wanted.frequencies)
    with pytest.raises(InputError, match="at least 300 different sentences"):
        distil(found, 8, fit=True)


def test_without_a_corpus_words_are_as_frequent_as_their_rank_says(teacher):
    static = distil_static(teacher, k=8, show_progress=False)
    read = Vocabulary.read(teacher)
    words = read.frequencies[read.words]
    np.testing.assert_allclose(words[:-1] / words[1:], np.arange(2, len(words) + 1) / np.arange(1, len(words)))
    np.testing.assert_allclose(static.encode(SENTENCES), distil(read, 8).encode(SENTENCES), atol=1e-6)


MISTAKES = {
    "requires a corpus": lambda teacher, _: distil(Vocabulary.read(teacher), 8, fit=True),
    "from 1 to 32": lambda _, vocabulary: distil(vocabulary, 999),
    "no tokens": lambda teacher, _: Vocabulary.read(teacher, [""]),
    "every sentence the same": lambda _, vocabulary: distil(
        dataclasses.replace(vocabulary, alone=np.ones_like(vocabulary.alone)), 8
    ),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_what_cannot_be_distilled_is_refused(teacher, vocabulary, words):
    with pytest.raises(InputError, match=words):
        MISTAKES[words](teacher, vocabulary)


def test_the_command(tiny_model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("\n".join(CORPUS))
    command = f"distill --model {tiny_model} --pooling mean --corpus c.txt -k 8 --half --sentences".split()
    assert cli.main([*command, "310", "-o", "static"]) == cli.main([*command, "310", "--no-fit", "-o", "plain"]) == 0
    assert "8 dimensions" in capsys.readouterr().out
    assert load_file("static/model.safetensors")["embeddings"].dtype == np.float16
    static, plain = (Encoder.from_pretrained(name).encode(SENTENCES) for name in ("static", "plain"))
    assert np.abs(plain - static).max() > 1e-2
