"""Checks of an encoder: whole ones pass, and each check notices the fault it is there for."""

import copy
import dataclasses
import json
import shutil
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import verification
from jaxwhiten.encoding.verification import CHECKS, Subject, verify
from jaxwhiten.engines.engine import engine_for
from jaxwhiten.engines.openvino import silenced
from jaxwhiten.export import save_onnx
from jaxwhiten.head import Head, Normalize
from jaxwhiten.head.vectors import Dense
from jaxwhiten.models import TransformerEncoder, init_model, load_model
from tests.conftest import slow_but
from tests.graphs import run
from tests.models.test_families import write
from tests.tiny import SENTENCES, tiny_config, write_tokenizer

PROMPTS = {"query": "Find what answers: ", "document": "Text: "}


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """Mean, a dense layer, unit length, and a prompt that is put in front unasked."""
    weight = np.random.default_rng(0).normal(size=(12, 32)).astype(np.float32)
    encoder = Encoder(load_model(tiny_model)[0], tiny_model, prompts=PROMPTS, default_prompt_name="document")
    encoder = encoder.then(Dense(weight, np.ones(12, np.float32), None, "Tanh"), Normalize())
    return encoder.save(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.from_pretrained(folder)


class Leaky(TransformerEncoder):
    """A sentence's vectors depend on its neighbours."""

    def __call__(self, input_ids, attention_mask, *arguments, **options):
        found = super().__call__(input_ids, attention_mask, *arguments, **options)
        states = [x + 1e-3 * jnp.mean(x, axis=0, keepdims=True) for x in found.hidden_states]
        return found._replace(hidden_states=tuple(states))


class Unmasked(TransformerEncoder):
    """Attention sees the padding."""

    def __call__(self, input_ids, attention_mask, *arguments, **options):
        return super().__call__(input_ids, jnp.ones_like(attention_mask), *arguments, **options)


class MaskedById(TransformerEncoder):
    """Tokens are told from padding by their ids."""

    def __call__(self, input_ids, attention_mask, *arguments, **options):
        mask = (input_ids != self.config.pad_token_id).astype(jnp.int32)
        return super().__call__(input_ids, mask, *arguments, **(options | {"tokens": None}))


def with_model(encoder, kind):
    """The encoder with its weights in another class of model."""
    model = encoder.model()
    model.__class__ = kind
    engine = engine_for("jax", model, encoder.max_length)
    return encoder._with_view(encoder.view.over(dataclasses.replace(encoder.view.core, engine=engine)))


def with_head(encoder, head):
    return encoder._with_view(encoder.view.with_head(head))


def check(name, encoder, folder):
    difference, allowed, _ = CHECKS[name](Subject(encoder, folder))
    return bool(difference <= allowed)


@pytest.mark.slow
def test_a_whole_folder_passes_every_check(folder, encoder):
    pytest.importorskip("sentence_transformers")
    found = list(verify(encoder, folder, against=True, texts=["One text.", "Another one, of mine."]))
    assert [finding for finding in found if finding.ok is False] == []
    assert [finding.name for finding in found if finding.ok is None] in ([], ["engines"])
    assert found[-1].name == "sentence-transformers, given texts"
    assert "2 texts" in found[-1].detail


@pytest.mark.parametrize(
    ("name", "kind"),
    slow_but(
        [("batch = alone", Unmasked), ("neighbours", Leaky), ("pad id", MaskedById), ("pad id", Unmasked)],
        ("pad id", MaskedById),
    ),
)
def test_faults_of_a_model(folder, encoder, name, kind):
    assert check(name, with_model(encoder, TransformerEncoder), folder)
    assert not check(name, with_model(encoder, kind), folder)


def test_a_text_with_other_ids_is_named(folder, encoder, monkeypatch):
    ids = Subject.ids
    odd = verification.TEXTS[2]
    monkeypatch.setattr(Subject, "ids", lambda self, text: ids(self, text)[: -1 if text == odd else None])
    part, allowed, what = CHECKS["tokens"](Subject(encoder, folder))
    assert part == 1 / len(verification.TEXTS) > allowed
    assert repr(odd)[:20] in what


@pytest.fixture(scope="module")
def wordless(tiny_model, tmp_path_factory):
    """A folder whose vectors do not depend on the words: zeroed embeddings leave positions."""
    model = load_model(tiny_model)[0]
    model.embeddings.word.embedding[...] *= 0
    return Encoder(model, tiny_model).save(tmp_path_factory.mktemp("wordless") / "model")


def test_an_encoder_that_ignores_the_words_fails(wordless, folder, monkeypatch, capsys):
    monkeypatch.setattr(verification, "CHECKS", {"texts apart": CHECKS["texts apart"]})
    assert cli.main(["verify", str(folder)]) == 0
    assert cli.main(["verify", str(wordless)]) == 1
    assert "of another word" in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, 0.0, 1.0])
def test_constant_vectors_are_noticed(folder, encoder, value):
    class Constant(Encoder):
        def encode(self, texts, **options):
            return np.full((len(texts), 12), value, np.float32)

    broken = copy.copy(encoder)
    broken.__class__ = Constant
    broken.without_code = lambda: broken
    assert check("texts apart", encoder, folder)
    assert not check("texts apart", broken, folder)


def test_vectors_in_another_order(folder, encoder):
    class Sorted(Encoder):
        def encode(self, texts, **options):
            return super().encode(sorted(texts, key=len), **options)

    broken = copy.copy(encoder)
    broken.__class__ = Sorted
    assert check("batch size and order", encoder, folder)
    assert not check("batch size and order", broken, folder)


def test_a_token_left_out(folder):
    broken = Encoder.from_pretrained(folder)
    broken.tokenizer._tokenizer.post_processor = None
    assert not all(finding.ok for finding in verify(broken, folder))


def test_padding_of_the_tokenizer(folder, encoder, monkeypatch):
    from tokenizers import Tokenizer

    real = verification.tokenizer_for

    def with_padding(model, place, max_length):
        tokenizer = real(model, place, max_length)
        tokenizer._tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
        tokenizer._tokenizer.enable_truncation(max_length)
        return tokenizer

    assert check("padding side", encoder, folder)
    monkeypatch.setattr(verification, "tokenizer_for", with_padding)
    assert not check("padding side", encoder, folder)


def test_another_pooling_or_a_step_left_out(folder, encoder):
    mean, *rest = encoder.head.steps
    cls = Head.named("cls").steps[0]
    for name, steps in {"pooling": (cls, *rest), "dense layers": (mean, rest[0])}.items():
        assert check(name, encoder, folder)
        assert not check(name, with_head(encoder, Head.of(steps, encoder.head.form)), folder)


def test_prompts_left_out(folder, encoder):
    swapped = dict(zip(PROMPTS, reversed(PROMPTS.values()), strict=True))
    assert check("prompts", encoder, folder)
    assert not check("prompts", with_head(encoder, encoder.head.with_prompt("")), folder)
    assert not check("prompts", Encoder.from_pretrained(folder, prompts=swapped), folder)


def test_a_prompt_that_is_not_pooled(tiny_model, folder, tmp_path):
    file = folder / "1_Pooling" / "config.json"
    before = file.read_text()
    file.write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": False}))
    try:
        without = Encoder.from_pretrained(folder)
        assert check("prompts", without, folder)
    finally:
        file.write_text(before)
    assert not check("prompts", without, folder)


def test_an_engine_with_other_weights(folder, encoder, monkeypatch):
    with silenced():
        pytest.importorskip("openvino")
    real, other = verification.engine_for, nnx.clone(encoder.model())
    other.layers[1].feed_forward.up.kernel[...] *= 1.01
    assert check("engines", encoder, folder)
    monkeypatch.setattr(verification, "engine_for", lambda name, model, *rest, **how: real(name, other, *rest, **how))
    assert not check("engines", encoder, folder)


def test_narrow_weights_that_are_others(tiny_model, folder, encoder):
    other = init_model(tiny_config(initializer_range=0.2), seed=1)
    broken = Encoder(other, tiny_model, head=encoder.head, prompts=PROMPTS)
    assert check("bfloat16", encoder, folder)
    assert not check("bfloat16", broken, folder)


@pytest.mark.parametrize("against", [True, False])
def test_other_vectors_than_those_of_sentence_transformers(folder, encoder, monkeypatch, against):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(verification, "CHECKS", {})
    broken = with_head(encoder, Head.of((Head.named("cls").steps[0], *encoder.head.steps[1:]), encoder.head.form))
    (found,) = verify(broken, folder, against=against)
    assert (found.name, found.ok) == ("sentence-transformers, own texts", False)


def test_without_sentence_transformers(folder, encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setattr(verification, "CHECKS", {})
    (skipped,) = verify(encoder, folder)
    assert skipped.ok is None
    assert "parity" in skipped.detail
    (failed,) = verify(encoder, folder, against=True)
    assert failed.ok is False


def test_a_key_that_the_reader_overlooks(folder, encoder, tmp_path, monkeypatch):
    """The whole folder decides, not what jaxwhiten reads of it."""
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(verification, "CHECKS", {})
    changed = shutil.copytree(folder, tmp_path / "model")
    settings = json.loads((changed / "tokenizer_config.json").read_text())
    (changed / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": False}))
    assert [found.ok for found in verify(encoder, folder)] == [True]
    assert [found.ok for found in verify(encoder, changed)] == [False]


@pytest.mark.parametrize("case", ["t5, version 1.1", "mt5"])
def test_gated_t5_beside_sentence_transformers_and_in_onnx(case, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("openvino")  # an engine that is not installed is a finding that is not ok
    write(tmp_path / "plain", case, vocab_size=200)
    write_tokenizer(tmp_path / "plain")
    folder = Encoder.from_pretrained(tmp_path / "plain", pooling="mean", max_length=24).save(tmp_path / "model")
    encoder = Encoder.from_pretrained(folder)
    monkeypatch.setattr(verification, "CHECKS", {"engines": CHECKS["engines"], "pooling": CHECKS["pooling"]})
    found = list(verify(encoder, folder, against=True))
    assert found[-1].name == "sentence-transformers, own texts"
    assert [each for each in found if not each.ok] == []
    np.testing.assert_allclose(run(save_onnx(tmp_path / "onnx", encoder)), encoder.encode(SENTENCES), atol=2e-5)


def test_the_command(folder, monkeypatch, capsys, tmp_path):
    kept = {name: CHECKS[name] for name in ("tokens", "pooling", "dense layers")}
    monkeypatch.setattr(verification, "CHECKS", kept)
    assert cli.main(["verify", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [row["name"] for row in report["checks"]] == [str(folder), *kept, "sentence-transformers, own texts"]
    monkeypatch.setitem(kept, "pooling", lambda subject: (0.5, 0.1, "far"))
    assert cli.main(["verify", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "FAIL pooling" in out
    assert err == "error: 1 of 5 checks failed: pooling: far\n"
    monkeypatch.setitem(kept, "pooling", lambda subject: 1 / 0)
    assert cli.main(["verify", str(folder), "--json"]) == 1
    assert "ZeroDivisionError" in json.loads(capsys.readouterr().out)["checks"][2]["detail"]
    assert cli.main(["verify", str(folder), "--against", "sentence-transformer"]) == 2
    assert cli.main(["verify", str(folder), "--texts", "mine.txt"]) == 2
    assert cli.main(["verify", str(tmp_path)]) == 1
