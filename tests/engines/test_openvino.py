"""What is OpenVINO's alone: bfloat16, and the programs that heads share."""

import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.codes import make_code
from jaxwhiten.engines import chosen, openvino
from jaxwhiten.engines.openvino import has_bfloat16
from jaxwhiten.errors import InputError, MissingDependencyError
from jaxwhiten.head import Normalize
from jaxwhiten.models.folders import ModelFolder
from tests.tiny import SENTENCES


@pytest.fixture
def encoder(tiny_model):
    pytest.importorskip("openvino")
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24, engine="openvino")


def programs(encoder, kind):
    return sum(key[0] == kind for key in encoder.view.core.engine._programs)


def test_heads_share_the_encoder_s_program(encoder):
    """Whitening, code and prompt behind it: no further graph of the encoder."""
    vectors = encoder.encode(SENTENCES)
    whitening = Whitening(n_components=5).fit(np.random.default_rng(0).normal(size=(99, 32)).astype(np.float32))
    before, whitened = programs(encoder, "poolings"), encoder.with_whitening(whitening)
    for head in (whitened, encoder.with_code(make_code("ubinary").fit(vectors)), whitened.with_pooling("mean")):
        head.encode(SENTENCES)
    assert programs(encoder, "poolings") == before == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sentence_without_a_plan_has_the_vectors_of_one_with_a_plan(tiny_model, dtype, monkeypatch):
    """In float32 unit length is part of the program, in bfloat16 a step after it."""
    if dtype == "bfloat16" and not has_bfloat16():
        pytest.skip("this CPU has no bfloat16")
    encoder = Encoder.from_pretrained(tiny_model, engine="openvino", dtype=dtype, pooling="mean", max_length=24)
    encoder = encoder.with_view(encoder.view.then(Normalize()).warm_up(8))
    assert bool(programs(encoder, "tail")) == (dtype != "float32")
    found = [encoder.encode(text) for text in SENTENCES]
    monkeypatch.setattr("jaxwhiten.engines.openvino._FEW_TOKENS", 0)
    np.testing.assert_array_equal(found, [encoder.encode(text) for text in SENTENCES])
    assert programs(encoder, "poolings") == 1


def test_bfloat16_is_refused_without_its_instructions(tiny_model, monkeypatch):
    monkeypatch.setattr(openvino, "has_bfloat16", lambda: False)
    with pytest.raises(InputError, match="no instructions for bfloat16"):
        Encoder.from_pretrained(tiny_model, pooling="mean", engine="openvino", dtype="bfloat16")
    with pytest.warns(UserWarning, match="no instructions for bfloat16"):
        assert chosen("auto", ModelFolder(tiny_model), "bfloat16") == "jax"


def test_bfloat16(encoder, tiny_model, monkeypatch):
    if not has_bfloat16():
        pytest.skip("this CPU has no bfloat16")
    with monkeypatch.context() as patch:
        for limit, lets in {"AVX2": False, "avx512_core": False, "AVX512_CORE_BF16": True}.items():
            patch.setenv("ONEDNN_MAX_CPU_ISA", limit)
            assert has_bfloat16() == lets
    rough = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=24, engine="openvino", dtype="bfloat16")
    assert rough.view.core.engine.dtype == "bfloat16"
    assert rough.view.fingerprint != encoder.view.fingerprint
    x, y = rough.encode(SENTENCES), encoder.encode(SENTENCES)
    assert ((x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)).min() > 0.999


def test_without_openvino_the_error_says_how_to_install_it(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino.core.cache_clear()
    with pytest.raises(MissingDependencyError, match="pip install"):
        Encoder.from_pretrained(tiny_model, engine="openvino")
