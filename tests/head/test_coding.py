"""Codes at the end of a head: bytes leave the compiled program, and the model folder keeps the code."""

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.codes import CODES, SpectrumCode, UBinary, load_code, make_code
from jaxwhiten.errors import InputError, MismatchError, ModelError
from jaxwhiten.export import export_sentence_transformer
from jaxwhiten.head import CODE_FILE, Normalize, Quantize, Truncate
from jaxwhiten.whitening import Moments
from tests.head.parts import accept
from tests.tiny import SENTENCES

NAMES = list(CODES)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def rows(encoder):
    rng = np.random.default_rng(0)
    found = encoder.encode(SENTENCES)
    return (found.mean(0) + rng.normal(size=(800, 32)) * found.std(0)).astype(np.float32)


@pytest.fixture(scope="module", params=NAMES)
def code(request, rows):
    more = {"bytes": 6} if request.param == "spectrum" else {}
    return make_code(request.param, **more).fit(rows)


def mostly_equal(found, wanted):
    assert found.dtype == np.uint8
    assert found.shape == wanted.shape
    assert (found != wanted).mean() < 0.02  # values within rounding of a level


def test_text_becomes_bytes_in_one_program(encoder, code):
    coded = encoder.with_code(code)
    assert coded.dimension == code.nbytes
    mostly_equal(coded.encode(SENTENCES), code.encode(encoder.encode(SENTENCES)))
    blocks = list(coded.encode_stream(SENTENCES, block_size=4))
    np.testing.assert_array_equal(np.concatenate(blocks), coded.encode(SENTENCES))
    assert f"{code.name} code of {code.nbytes} bytes" in coded.view.head.summary
    assert coded.view.fingerprint != encoder.view.fingerprint
    floats = coded.with_view(coded.view.uncoded)
    np.testing.assert_array_equal(floats.encode(SENTENCES), encoder.encode(SENTENCES))
    assert [type(step).__name__ for step in coded.view.head.steps] == ["Mean", "Quantize"]


@pytest.mark.jax
def test_in_jax_it_is_the_same(tiny_model, rows):
    jax = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, engine="jax")
    code = SpectrumCode(bytes=6).fit(rows)
    mostly_equal(jax.with_code(code).encode(SENTENCES), code.encode(jax.encode(SENTENCES)))


def test_the_folder_keeps_the_code_and_others_read_the_vectors(encoder, code, tmp_path):
    coded = encoder.with_code(code)
    folder = coded.save(tmp_path / "out")
    again = Encoder.from_pretrained(folder)
    np.testing.assert_array_equal(again.encode(SENTENCES), coded.encode(SENTENCES))
    assert again.view.fingerprint == coded.view.fingerprint
    assert again.view.uncoded.space.fingerprint == coded.view.uncoded.space.fingerprint
    assert repr(again.view.head.code) == repr(code)
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, coded.view.uncoded(SENTENCES), atol=1e-5)
    encoder.save(folder)  # over it: the code goes with the head it belonged to
    assert not (folder / CODE_FILE).exists()
    assert Encoder.from_pretrained(folder).encode(SENTENCES).dtype == np.float32


def test_a_code_of_whitened_vectors_follows_the_whitening(encoder, rows, tmp_path):
    whitening = Whitening(gamma=0.5, n_components=20).fit(rows)
    code = SpectrumCode(bytes=6).fit(whitening)
    coded = encoder.with_whitening(whitening).with_code(code)
    kinds = [type(step).__name__ for step in coded.view.head.steps]
    assert kinds == ["Mean", "Whiten", "Normalize", "Quantize"]
    assert coded.view.head.whitening.gamma == 0.5
    mostly_equal(coded.encode(SENTENCES), code.encode(coded.view.uncoded(SENTENCES)))
    again = Encoder.from_pretrained(coded.save(tmp_path))
    assert [type(step).__name__ for step in again.view.head.steps] == kinds
    np.testing.assert_array_equal(again.encode(SENTENCES), coded.encode(SENTENCES))
    bits = UBinary().fit(coded.view.uncoded(SENTENCES))
    assert coded.with_code(bits).dimension == 3  # takes the place of the code before
    with pytest.raises(MismatchError, match="space of the code: expected dimension=20, got 32"):
        encoder.with_code(code)
    other = encoder.with_whitening(whitening.with_params(gamma=1.0))
    with pytest.raises(MismatchError, match="vectors of a whitening, and these are of another one"):
        other.with_code(code)
    of_all = SpectrumCode(bytes=6).fit(Whitening().fit(rows))
    of_all.save(tmp_path / "code.safetensors")
    for each in (of_all, load_code(tmp_path / "code.safetensors")):
        with pytest.raises(MismatchError, match="vectors of a whitening, and these are of none"):
            encoder.with_code(each)


def test_whatever_cannot_be_is_refused(encoder, rows, tmp_path):
    code = UBinary().fit(rows)
    coded = encoder.with_code(code)
    with pytest.raises(InputError, match="nothing can follow a code"):
        coded.with_view(coded.view.then(Normalize()))
    with pytest.raises(MismatchError, match="expects 32 dimensions"):
        encoder.with_view(encoder.view.then(Truncate(8), Quantize.of(code)))
    with pytest.raises(MismatchError, match="the space of the code: expected dimension=32, got 8"):
        encoder.with_view(encoder.view.then(Truncate(8))).with_code(code)
    of_others = SpectrumCode(bytes=4).fit(Moments(provenance={"pooling": "cls"}).update(rows))
    with pytest.raises(MismatchError, match="expected pooling='cls', got"):
        encoder.with_code(of_others)
    folder = coded.save(tmp_path / "out")
    UBinary().fit(rows[:, :16]).save(folder / CODE_FILE)
    accept(folder, CODE_FILE)
    with pytest.raises(ModelError, match="expects 16 dimensions"):
        Encoder.from_pretrained(folder)
    (folder / CODE_FILE).write_bytes(b"nothing")
    accept(folder, CODE_FILE)
    with pytest.raises(ModelError, match="not a readable"):
        Encoder.from_pretrained(folder)


def test_the_card_says_it(encoder, code, tmp_path):
    card = (export_sentence_transformer(tmp_path / "out", encoder.with_code(code)) / "README.md").read_text()
    assert f"{code.name} code of {code.nbytes} bytes" in card
    assert "encoder.queries" in card
    assert f"{code.n_features_in_}-dimensional vectors" in card
