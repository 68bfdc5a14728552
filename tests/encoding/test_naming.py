"""Naming one thing changes one thing: a named pooling keeps the folder's other steps, its prompts and its length."""

import json
import warnings

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.commands import cli
from jaxwhiten.encoding import PoolingWarning
from jaxwhiten.encoding.arrow import loaded_again
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.head import Dense, Normalize, Truncate
from tests.conftest import slow_but
from tests.text.test_classes import update
from tests.tiny import SENTENCES, write_tokenizer

LONGEST = 9  # the sentences have up to 30 tokens
PROMPTS = {"query": "Music: ", "document": "", "topic": "Two dogs "}
RNG = np.random.default_rng(0)
DENSE = Dense(RNG.normal(size=(12, 32)).astype(np.float32) / 4, RNG.normal(size=12).astype(np.float32), None, "Tanh")


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """A folder that differs from the defaults in everything that a named pooling must not change."""
    out = tmp_path_factory.mktemp("naming") / "model"
    how = {"prompts": PROMPTS, "default_prompt_name": "topic", "max_length": LONGEST}
    encoder = Encoder.from_pretrained(tiny_model, pooling="cls", device="cpu:0", **how)
    encoder.with_view(encoder.view.then(DENSE, Normalize())).save(out)
    update(out / "tokenizer_config.json", truncation_side="left")
    return out


def read(folder, **how):
    return Encoder.from_pretrained(folder, device="cpu:0", **how)


def expected(folder, tiny_model, pooling):
    """Vectors of the folder's steps in NumPy, after a pooling of the transformer alone; texts lose their beginning."""
    plain, texts = read(tiny_model, pooling=pooling, bare=True), []
    for text in SENTENCES:
        ids = plain.view.core.tokenizer([PROMPTS["topic"] + text]).flat
        kept = [ids[0], *ids[1:-1][-(LONGEST - 2) :], ids[-1]]
        texts.append(kept)
    vectors = np.concatenate([_of_ids(plain, ids) for ids in texts])
    return normalize(np.tanh(vectors @ DENSE.weight.T + DENSE.bias))


def _of_ids(encoder, ids):
    from jaxwhiten.text import TokenIds
    from jaxwhiten.views import stream

    tokens = TokenIds(np.array(ids, np.int32), np.array([len(ids)]))
    return stream.vectors(encoder.view.core.engine, tokens, {"": encoder.view.output})[""]


def by_the_shell(folder, pooling, tmp_path):
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in SENTENCES))
    words = ["encode", tmp_path / "texts.jsonl", "-o", tmp_path / "out.npy", "--model", folder, "--pooling", pooling]
    assert cli.main([str(word) for word in words]) == 0
    return np.load(tmp_path / "out.npy")


DOORS = {
    "from_pretrained": lambda folder, pooling, path: read(folder, pooling=pooling).encode(SENTENCES),
    "with_pooling": lambda folder, pooling, path: read(folder).with_pooling(pooling).encode(SENTENCES),
    "encode": lambda folder, pooling, path: read(folder).encode(SENTENCES, pooling=["auto", pooling])[pooling],
    "worker": lambda folder, pooling, path: loaded_again(read(folder, pooling=pooling).view.space).encode(SENTENCES),
    "saved": lambda folder, pooling, path: read(read(folder, pooling=pooling).save(path / "saved")).encode(SENTENCES),
    "command": by_the_shell,
}


@pytest.mark.parametrize("door", slow_but(DOORS, "from_pretrained", "saved", "command"))
def test_a_named_pooling_replaces_the_pooling_alone(folder, tiny_model, tmp_path, door):
    for pooling in ("mean", "first_last_avg"):
        (tmp_path / pooling).mkdir()
        found = DOORS[door](folder, pooling, tmp_path / pooling)
        np.testing.assert_allclose(found, expected(folder, tiny_model, pooling), atol=1e-5, err_msg=pooling)


def test_what_a_named_pooling_keeps(folder):
    own, named, bare = read(folder), read(folder, pooling="mean"), read(folder, pooling="mean", bare=True)
    assert (named.view.head.name, named.dimension, named.max_length) == ("auto:mean", 12, LONGEST)
    assert (named.prompts, settings_of(named).default_prompt_name) == (own.prompts, "topic")
    assert (bare.view.head.name, bare.dimension, bare.max_length) == ("mean", 32, LONGEST)
    assert (bare.prompts, settings_of(bare).default_prompt_name) == (own.prompts, None)
    assert read(folder, pooling="cls").view.space == own.view.space
    assert len({each.view.fingerprint for each in (own, named, bare)}) == 3
    assert read(folder, bare=True).encode(SENTENCES[:2], pooling="mean").shape == (2, 32)
    assert read(folder, pooling="mean", truncate_dim=5).dimension == 5
    assert named.encode(SENTENCES[:1], pooling="auto:mean").shape == (1, 12)


@pytest.mark.slow
def test_a_whitening_and_a_code_stay_with_their_pooling(folder, tiny_model, tmp_path, capsys):
    own, rows = read(folder), RNG.normal(size=(300, 12)).astype(np.float32)
    whitening = Whitening.from_moments(Moments().update(rows), n_components=6, provenance=own.view.space.record())
    whitened = (
        own.with_whitening(whitening)
        .with_view(own.with_whitening(whitening).view.then(Truncate(5)))
        .save(tmp_path / "whitened")
    )
    code = SpectrumCode(bytes=3).fit(whitening)
    coded = own.with_whitening(whitening).with_code(code).save(tmp_path / "coded")
    both = "omits whitening 12 → 6 and spectrum code of 3 bytes"
    for out, what in ((whitened, "omits whitening 12 → 6, fitted on"), (coded, both)):
        assert read(out, pooling="cls").view.fingerprint == read(out).view.fingerprint
        for door in ("from_pretrained", "encode", "command"):
            (place := tmp_path / f"{out.name}-{door}").mkdir()
            with warnings.catch_warnings() if door == "command" else pytest.warns(PoolingWarning, match=what):
                warnings.simplefilter("always")
                found = DOORS[door](out, "mean", place)
            assert door != "command" or f"--pooling mean {what}" in capsys.readouterr().err
            np.testing.assert_allclose(found, expected(folder, tiny_model, "mean"), atol=1e-5)


@pytest.mark.slow
def test_layers_may_be_counted_from_either_end(tiny_model, tmp_path):
    own = read(tiny_model, pooling="first_last_avg").with_view(
        read(tiny_model, pooling="first_last_avg").view.then(Normalize())
    )
    whitening = Whitening(n_components=3).fit(own.encode(SENTENCES * 4))
    out = own.with_whitening(whitening).save(tmp_path / "model")
    assert read(out, pooling="first_last_avg").view.space == read(out).view.space
    assert read(tiny_model, pooling="first_last_avg").view.head.name == "first_last_avg"


def lengths(folder, tiny_model, tmp_path):
    """The maximum length that each door reads by default, and the length that belongs there."""
    yield "auto", read(folder), LONGEST
    yield "named", read(folder, pooling="mean"), LONGEST
    yield "bare", read(folder, pooling="mean", bare=True), LONGEST
    write_tokenizer(tmp_path / "tokenizer")
    update(tmp_path / "tokenizer" / "tokenizer_config.json", model_max_length=33)
    model = read(tiny_model, pooling="mean").module
    yield "constructor", Encoder(model, tmp_path / "tokenizer", device="cpu:0"), 33
    yield "saved", read(Encoder(model, tmp_path / "tokenizer").save(tmp_path / "saved")), 33


def test_the_folders_length_is_the_default(folder, tiny_model, tmp_path):
    for door, found, longest in lengths(folder, tiny_model, tmp_path):
        assert found.max_length == longest, door
