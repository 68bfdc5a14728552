"""The engine that is chosen: OpenVINO on a CPU for what it takes, with the vectors of JAX; else JAX, which says why."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, Space
from jaxwhiten.engines import chosen, engine_class, engine_for, openvino, recorded
from jaxwhiten.errors import InputError, MissingDependencyError
from jaxwhiten.head import Head
from jaxwhiten.models import StaticEncoder, load_model
from jaxwhiten.models.folders import ModelFolder, load_config
from jaxwhiten.models.graph import EncoderGraph, Graph
from jaxwhiten.text import TokenIds
from jaxwhiten.views import stream
from tests.conftest import slow_but
from tests.golden import cases
from tests.tiny import write_model, write_tokenizer

pytest.importorskip("openvino")
EXPERTS = [case for case in cases.CASES if "experts" in case]  # the only families that OpenVINO does not take


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("small") / "bert")


@pytest.mark.parametrize("case", slow_but(cases.CASES, "modernbert", "nomic_bert", "mt5", *EXPERTS))
def test_every_golden_family_but_experts_is_taken_with_the_vectors_of_jax(tmp_path, case):
    folder, found = cases.write_checkpoint(tmp_path, case), {}
    if case in EXPERTS:
        with pytest.warns(UserWarning, match="The engine is jax, not openvino: .*experts"):
            assert chosen("auto", ModelFolder(folder)) == "jax"
        assert f"does not take: `{load_config(folder).model_type}`, " in Path("docs/guides/engines.md").read_text()
        with pytest.raises(InputError, match="no ONNX graph of a mixture of experts"):
            EncoderGraph(Graph(), load_model(folder)[0], 16)
        return
    assert chosen("auto", ModelFolder(folder)) == "openvino"
    for name in ("jax", "openvino"):
        model, config, _ = engine_class(name).load(ModelFolder(folder), "float32")
        given = cases.inputs(case, config.pad_token_id)
        kept = given["attention_mask"] > 0
        engine, head = engine_for(name, model, kept.shape[1]), Head.named("mean")
        tokens = TokenIds(given["input_ids"][kept].astype(np.int32), kept.sum(axis=1))
        heads = {"": stream.Output(head.form, engine.place(head.steps), config.hidden_size)}
        found[name] = stream.vectors(engine, tokens, heads)[""]
    scale = max(1.0, float(np.abs(found["jax"]).max()))
    assert np.abs(found["openvino"] - found["jax"]).max() <= 1e-5 * scale


def test_a_variable_names_the_engine_and_an_argument_comes_first(folder, monkeypatch):
    assert chosen("jax", ModelFolder(folder)) == "jax"
    monkeypatch.setenv("JAXWHITEN_ENGINE", "jax")
    assert chosen("auto", ModelFolder(folder)) == "jax"
    assert chosen("openvino", ModelFolder(folder)) == "openvino"
    assert "float32 by jax" in repr(Encoder.from_pretrained(folder, pooling="mean"))


def test_jax_says_why_it_is_chosen(folder, monkeypatch):
    def missing():
        raise MissingDependencyError("openvino is not installed.")

    with monkeypatch.context() as patch:
        patch.setattr(openvino, "core", missing)
        with pytest.warns(UserWarning, match="The engine is jax, not openvino: openvino is not installed"):
            assert chosen("auto", ModelFolder(folder)) == "jax"
    monkeypatch.setattr(openvino, "_MOST_BYTES", 1e4)
    with pytest.warns(UserWarning, match="GB of weights"):
        assert chosen("auto", ModelFolder(folder)) == "jax"


def test_jax_without_a_word_where_no_other_engine_could_run(folder, tmp_path, monkeypatch):
    write_tokenizer(tmp_path / "tokenizer")
    static = Encoder.from_module(StaticEncoder(np.eye(200, 8, dtype=np.float32)), tmp_path / "tokenizer").save(
        tmp_path / "static"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen("auto", ModelFolder(static)) == "jax"
        assert chosen("auto", ModelFolder(folder), device="cpu:0") == "jax"
        monkeypatch.setattr(openvino, "has_accelerator", lambda: True)
        assert chosen("auto", ModelFolder(folder)) == "jax"


def test_recorded_vectors_choose_among_engines_that_give_them():
    assert recorded(Space(dtype="float32", engine="openvino")) == recorded(Space()) == "auto"
    assert recorded(Space(dtype="bfloat16")) == "jax"
    assert recorded(Space(dtype="bfloat16", engine="openvino")) == "openvino"
