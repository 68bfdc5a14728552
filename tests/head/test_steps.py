"""Steps of a head: which fit together, which share a compiled program, and what belongs to a whitening or a code."""

import dataclasses
import fractions
import json

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, io
from jaxwhiten.codes import SpectrumCode, UBinary, load_code, make_code
from jaxwhiten.errors import InputError, MismatchError, ModelError
from jaxwhiten.head import (
    CODE_FILE,
    AfterPrompt,
    Dense,
    Head,
    LayerMix,
    Mean,
    Normalize,
    Quantize,
    Truncate,
    VectorStep,
    Whiten,
    facts,
    lasting,
    leaves,
    step,
)
from jaxwhiten.head.pooling import Cls, Concat
from tests.tiny import ALONE, SENTENCES, tiny_config

ROWS = np.random.default_rng(0).standard_normal((800, 32)).astype(np.float32)
WHITENING = Whitening(20, gamma=0.5).fit(ROWS)
UBINARY, INT8 = make_code("ubinary").fit(ROWS), make_code("int8").fit(3 * ROWS)


@step
class Scaled(VectorStep):
    """A step of another package, for which the code outside this one is decisive."""

    factor: float


def dense(dtype=np.float32, **how):
    return Dense(ROWS[:8].astype(dtype), np.ones(8, dtype), **how)


# Steps of which each computes something else than the next one.
DIFFERENT = {
    "layers": (LayerMix((0, 1), np.ones(2, np.float32)), LayerMix((0, -1), np.ones(2, np.float32))),
    "poolings": tuple(Head.named(name).steps for name in ALONE),
    "concatenated": (Concat((Mean(), Cls())), Concat((Cls(), Mean())), Concat((Cls(), Cls(), Mean()))),
    "behind a prompt": (AfterPrompt(Mean(), np.int32(0)), AfterPrompt(Cls(), np.int32(0))),
    "truncated": (Truncate(4), Truncate(5)),
    "dense": (dense(), dense(activation="ReLU"), dense(residual=True), dense(np.float16)),
    "whitening": (Whiten.of(WHITENING), dense(activation="Identity")),
    "codes": (Quantize.of(INT8), Quantize.of(make_code("uint8").fit(ROWS)), Quantize.of(UBINARY)),
    "of others": (Scaled(2.0), Scaled(3.0)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_steps_that_differ_share_no_program(name):
    """A compiled program is found by the facts of its head, and in JAX by its tree structure."""
    steps = DIFFERENT[name]
    assert len({facts(each) for each in steps}) == len(steps)
    texts = {lasting(facts(each)) for each in steps}
    assert texts == {None} if name == "of others" else len(texts) == len(steps)
    for each in steps:
        named, structure = jax.tree.flatten_with_path(each)
        assert [path for path, _ in leaves(each)] == [jax.tree_util.keystr(path) for path, _ in named]
        assert all(a is b for (_, a), (_, b) in zip(leaves(each), named, strict=True))
        assert facts(jax.device_put(each)) == facts(each)  # on a device, where records are gone
        assert facts(jax.tree.unflatten(structure, [leaf for _, leaf in named])) == facts(each)
        by_shape = [jax.tree.structure(other) == structure for other in steps]
        assert sum(by_shape) == 1 or name == "dense"  # whose dtype is not part of it


def test_a_class_of_others_in_a_code_is_not_kept():
    class Mine(UBinary):
        name = "ubinary"

    assert lasting(facts(dataclasses.replace(Quantize.of(UBINARY), kind=Mine))) is None
    assert lasting(fractions.Fraction) is None


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def test_a_code_of_whitened_vectors_follows_the_whitening(encoder, tmp_path):
    code = SpectrumCode(bytes=6).fit(WHITENING)
    coded = encoder.with_whitening(WHITENING).with_code(code)
    assert coded.view.head.summary.startswith("mean > whitening 32 → 20 > normalize > spectrum code of 6 bytes")
    assert coded.view.fingerprint != coded.view.uncoded.fingerprint
    assert coded.with_code(UBinary().fit(coded.view.uncoded(SENTENCES))).dimension == 3  # in place of the code before
    code.save(tmp_path / "code.safetensors")
    for each in (code, load_code(tmp_path / "code.safetensors")):
        with pytest.raises(MismatchError, match="dimension=20"):
            encoder.with_code(each)
        with pytest.raises(MismatchError, match="another one"):
            encoder.with_whitening(WHITENING.with_params(gamma=1.0)).with_code(each)
    with pytest.raises(MismatchError, match="of none"):
        encoder.with_code(SpectrumCode(bytes=6).fit(Whitening().fit(ROWS)))
    folder = coded.save(tmp_path / "model")
    encoder.save(folder)  # over it: the code goes with the head it belonged to
    assert not (folder / CODE_FILE).exists()
    assert Encoder.from_pretrained(folder).encode(SENTENCES).dtype == np.float32


MAX = Head.of((LayerMix((0, 2), np.ones(2, np.float32)), *Head.named("max").steps, Normalize()))


def test_heads_have_names_and_summaries():
    assert (MAX.name, MAX.summary) == ("auto", "layers 0+2 > max > normalize")
    assert Head.of(Head.named("cls").steps).name == "cls"
    assert MAX.then(Truncate(7)).width(tiny_config()) == 7


def put(encoder, *steps):
    return encoder.with_view(encoder.view.then(*steps))


MISTAKES = {
    "no pooling": (lambda _: Head.of((Normalize(),)), InputError, "has 0"),
    "another width": (lambda _: MAX.then(Dense(np.zeros((4, 8), np.float32))).width(tiny_config()), MismatchError, "8"),
    "too many columns": (lambda _: MAX.then(Truncate(33)).width(tiny_config()), InputError, "33 columns"),
    "behind a code": (lambda e: put(e.with_code(UBINARY), Normalize()), InputError, "follow a code"),
    "a code of more columns": (lambda e: put(e, Truncate(8), Quantize.of(UBINARY)), MismatchError, "32 dimensions"),
    "a code of another space": (lambda e: put(e, Truncate(8)).with_code(UBINARY), MismatchError, "dimension=32"),
    "a list for a tuple": (lambda e: put(e, Scaled([1.0])), InputError, "use a tuple"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_steps_that_do_not_fit_are_refused(encoder, mistake):
    make, error, words = MISTAKES[mistake]
    with pytest.raises(error, match=words):
        make(encoder)


@pytest.mark.parametrize(
    ("content", "words"), [(UBinary().fit(ROWS[:, :16]), "16 dimensions"), (b"nothing", "not a readable")]
)
def test_a_code_that_is_not_the_folders_is_refused(encoder, tmp_path, content, words):
    folder = encoder.with_code(UBINARY).save(tmp_path / "out")
    (folder / CODE_FILE).unlink()
    (folder / CODE_FILE).write_bytes(content) if isinstance(content, bytes) else content.save(folder / CODE_FILE)
    manifest = json.loads((folder / io.MANIFEST).read_text())
    manifest["parts"][CODE_FILE] = io.sha256_file(folder / CODE_FILE)
    (folder / io.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=words):
        Encoder.from_pretrained(folder)
