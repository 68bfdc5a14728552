"""Naming one thing changes one thing: a named pooling keeps the folder's other steps, its prompts and its length."""

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


def expected(folder, pooling):
    """The folder's steps in NumPy, after a pooling of the transformer alone."""
    vectors = read(folder, pooling=pooling, bare=True).encode(SENTENCES, prompt=PROMPTS["topic"])
    return normalize(np.tanh(vectors @ DENSE.weight.T + DENSE.bias))


DOORS = {
    "from_pretrained": lambda folder, pooling, path: read(folder, pooling=pooling).encode(SENTENCES),
    "with_pooling": lambda folder, pooling, path: read(folder).with_pooling(pooling).encode(SENTENCES),
    "encode": lambda folder, pooling, path: read(folder).encode(SENTENCES, pooling=pooling),
    "worker": lambda folder, pooling, path: loaded_again(read(folder, pooling=pooling).view.space).encode(SENTENCES),
    "saved": lambda folder, pooling, path: read(read(folder, pooling=pooling).save(path / "saved")).encode(SENTENCES),
}


@pytest.mark.parametrize("door", slow_but(DOORS, "encode", "saved"))
def test_a_named_pooling_replaces_the_pooling_alone(folder, tmp_path, door):
    for pooling in ("mean", "first_last_avg"):
        (tmp_path / pooling).mkdir()
        found = DOORS[door](folder, pooling, tmp_path / pooling)
        np.testing.assert_allclose(found, expected(folder, pooling), atol=1e-5, err_msg=pooling)


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
def test_a_whitening_and_a_code_stay_with_their_pooling(folder, tmp_path, capsys):
    own, rows = read(folder), RNG.normal(size=(300, 12)).astype(np.float32)
    whitening = Whitening.from_moments(Moments().update(rows), n_components=6, provenance=own.view.space.record())
    whitened = own.with_whitening(whitening)
    coded = whitened.with_code(SpectrumCode(bytes=3).fit(whitening)).save(tmp_path / "coded")
    whitened = whitened.with_view(whitened.view.then(Truncate(5))).save(tmp_path / "whitened")
    both = "omits whitening 12 → 6 and spectrum code of 3 bytes"
    for out, what, width in ((whitened, "omits whitening 12 → 6, fitted on", 5), (coded, both, 12)):
        assert read(out, pooling="cls").view.fingerprint == read(out).view.fingerprint
        for door in ("from_pretrained", "encode"):
            with pytest.warns(PoolingWarning, match=what):
                found = DOORS[door](out, "mean", tmp_path)
            wanted = expected(folder, "mean")[:, :width]  # a truncation is the folder's
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    (tmp_path / "texts.txt").write_text("A dog.")
    words = f"encode {tmp_path}/texts.txt -o {tmp_path}/out.npy --model {coded} --pooling mean"
    with warnings.catch_warnings(action="always"):
        assert cli.main(words.split()) == 0
    assert f"--pooling mean {both}" in capsys.readouterr().err


@pytest.mark.slow
def test_layers_may_be_counted_from_either_end(tiny_model, tmp_path):
    own = read(tiny_model, pooling="first_last_avg")
    out = own.with_view(own.view.then(Normalize())).save(tmp_path / "model")
    assert read(out, pooling="first_last_avg").view.space == read(out).view.space


def test_the_tokenizer_s_length_is_the_default(tiny_model, tmp_path):
    write_tokenizer(tmp_path / "tokenizer")
    update(tmp_path / "tokenizer" / "tokenizer_config.json", model_max_length=33)
    encoder = Encoder.from_module(read(tiny_model, pooling="mean").module, tmp_path / "tokenizer", device="cpu:0")
    assert encoder.max_length == read(encoder.save(tmp_path / "saved")).max_length == 33
