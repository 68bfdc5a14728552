"""Threads share what is fitted or loaded; processes get it by pickle, or an error says what to pass instead."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxwhiten import CrossEncoder, Encoder, SpectrumCode, Whitening, build_index
from jaxwhiten.codes import Binary, Int8, UBinary, UInt8
from jaxwhiten.errors import InputError
from tests.sentences import generated

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
TEXTS = generated(160)
X = (np.random.default_rng(0).normal(size=(800, 16)) * np.linspace(3, 0.3, 16)).astype(np.float32)
CODES = {"spectrum": SpectrumCode(bytes=4), "int8": Int8(), "uint8": UInt8(), "binary": Binary(), "ubinary": UBinary()}
BACKENDS = {"faiss-flat": {}, "faiss-ivf": {"bytes": 4}, "jax": {}}


@pytest.fixture(scope="module")
def things(tiny_model, cross_encoder):
    """An object of every public class that computes, and what a thread does with its n-th share of rows."""
    encoder, cross = Encoder.from_pretrained(tiny_model, pooling="mean"), CrossEncoder.from_pretrained(cross_encoder)
    found = {
        "Encoder": (encoder, lambda own, at: own.encode(TEXTS[at::8])),
        "Encoder.shrink": (encoder.shrink(TEXTS, bytes=4), lambda own, at: own.encode(TEXTS[at::8])),
        "Encoder in memory": (
            Encoder.from_module(encoder.module, tiny_model),
            lambda own, at: own.encode(TEXTS[at::8]),
        ),
        "CrossEncoder": (cross, lambda own, at: own.predict([(TEXTS[at], text) for text in TEXTS[:9]])),
        "Whitening": (Whitening().fit(X), lambda own, at: own.transform(X[at::8])),
    }
    for name, code in CODES.items():
        found[name] = code.fit(X), lambda own, at: own.decode(own.encode(X[at::8]))
    for backend, options in BACKENDS.items():
        found[backend] = build_index(X, backend, **options), lambda own, at: own.search(X[at::8], 3)[0]
    index = encoder.index(TEXTS)
    found["Index of an encoder"] = index, lambda own, at: [hit.score for hit in own.search(TEXTS[at], 3)]
    return found


NAMES = ["Encoder", "Encoder.shrink", "CrossEncoder", "Whitening", *CODES, *BACKENDS, "Index of an encoder"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_eight_threads_get_what_one_gets(things, name):
    own, use = things[name]
    alone, barrier = [np.asarray(use(own, at)) for at in range(8)], threading.Barrier(8)

    def work(at):
        barrier.wait()
        return [np.asarray(use(own, at)) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        for at, found in enumerate(pool.map(work, range(8))):
            for again in found:
                np.testing.assert_allclose(again, alone[at], atol=1e-5)


@pytest.mark.parametrize("copied", [lambda own: pickle.loads(pickle.dumps(own)), copy.deepcopy])
@pytest.mark.parametrize("name", ["Encoder", "Encoder.shrink"])
def test_a_copy_computes_the_same(things, name, copied):
    own, use = things[name]
    np.testing.assert_array_equal(use(copied(own), 0), use(own, 0))


@pytest.mark.parametrize("name", ["Encoder in memory", "CrossEncoder", *BACKENDS])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_what_cannot_be_copied_says_what_to_pass(things, name, copied):
    with pytest.raises(InputError, match="cannot be pickled or deep-copied: "):
        copied(things[name][0])
