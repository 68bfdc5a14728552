"""`precision=` of encode: the bytes of sentence-transformers, or those of a fitted code."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import Int8, SpectrumCode
from jaxwhiten.errors import InputError
from tests.tiny import SENTENCES

PRECISIONS = ["int8", "uint8", "binary", "ubinary"]


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_are_those_of_sentence_transformers(encoder, precision):
    util = pytest.importorskip("sentence_transformers.util", reason="needs the extra `parity`")
    wanted = util.quantize_embeddings(encoder.encode(SENTENCES), precision)
    found = encoder.encode(SENTENCES, precision=precision)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_several_poolings_take_a_precision_each(encoder):
    both = encoder.encode(SENTENCES, pooling=["mean", "cls"], precision="ubinary")
    for pooling, found in both.items():
        np.testing.assert_array_equal(found, np.packbits(encoder.encode(SENTENCES, pooling=pooling) > 0, axis=1))


def test_a_fitted_code_is_a_precision(encoder):
    vectors = encoder.encode(SENTENCES)
    rows = (vectors.mean(0) + np.random.default_rng(0).normal(size=(500, 32)) * vectors.std(0)).astype(np.float32)
    code = SpectrumCode(bytes=5).fit(rows)
    coded = encoder.with_code(code)
    np.testing.assert_array_equal(encoder.encode(SENTENCES, precision=code), coded.encode(SENTENCES))
    np.testing.assert_array_equal(coded.encode(SENTENCES, precision="float32"), coded.view.uncoded(SENTENCES))
    one = encoder.encode(SENTENCES[:1], precision=Int8().fit(rows))  # ranges are kept: alone or not, it is the same
    assert one.dtype == np.int8
    np.testing.assert_array_equal(one, encoder.encode(SENTENCES, precision=Int8().fit(rows))[:1])


def test_what_cannot_be_is_refused(encoder):
    with pytest.raises(InputError, match="Did you mean 'ubinary'"):
        encoder.encode(SENTENCES, precision="ubinry")
    with pytest.raises(InputError, match="at least two sentences"):
        encoder.encode(SENTENCES[:1], precision="int8")
