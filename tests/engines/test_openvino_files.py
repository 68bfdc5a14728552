"""int8 weights from strangers, whose checksums are right: files that OpenVINO cannot read, graphs of something else."""

import json
import os
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.encoding import verification
from jaxwhiten.engines.openvino import silenced
from jaxwhiten.engines.quantised import GRAPH, HEADER, Quantised, hidden_state, outputs_by_name
from jaxwhiten.errors import JaxwhitenError, ModelError
from jaxwhiten.head import at_pooling
from jaxwhiten.io import sha256_file
from tests.tiny import SENTENCES, write_model

WIDTH, STATES = 32, 2
WEIGHTS = "int8.bin"


@pytest.fixture(scope="module")
def ov():
    with silenced():
        return pytest.importorskip("openvino", reason="the engine OpenVINO is not installed")


@pytest.fixture(scope="module")
def whole(ov, tmp_path_factory):
    """A folder with weights as `save_int8` writes them, but in float32."""
    folder = write_model(tmp_path_factory.mktemp("whole") / "bert", num_layers=1)
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="float32")
    graph, names = encoder.executor.uncompiled([at_pooling(encoder.head.steps)[0]])
    named, results = outputs_by_name(graph), []
    for number, name in enumerate(names):
        results.append(ov.opset13.result(named[name]))
        results[-1].output(0).get_tensor().set_names({hidden_state(number)})
    facts = {"weights": encoder.executor.weights_digest(), "longest": 64}
    Quantised.write(folder, ov.Model(results, graph.get_parameters()), facts)
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def sealed(model):
    """The header with the checksums of the files that are there."""
    header = model / "openvino" / HEADER
    digests = {name: sha256_file(model / "openvino" / name) for name in (GRAPH, WEIGHTS)}
    header.write_text(json.dumps(json.loads(header.read_text()) | {"sha256": digests}))


def encode(model):
    return Encoder.from_pretrained(model, pooling="mean", engine="openvino", dtype="int8").encode(SENTENCES)


@pytest.mark.parametrize("cache", ["0", "1"])
def test_files_that_change_before_they_are_read_are_refused(copied, tmp_path, cache, monkeypatch):
    """Their checksums were right when the encoder was made, and its fingerprint names them."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", cache)
    encoder = Encoder.from_pretrained(copied, pooling="mean", engine="openvino", dtype="int8")
    file = copied / "openvino" / WEIGHTS
    (tmp_path / "other").write_bytes(file.read_bytes()[:-4] + np.float32(0.5).tobytes())
    os.replace(tmp_path / "other", file)
    for use in (lambda: encoder.encode(SENTENCES), lambda: encoder.save(tmp_path / "saved")):
        with pytest.raises(ModelError, match=r"int8\.bin: changed after the model was loaded: load the model again"):
            use()
    assert not list((tmp_path / "cache").rglob("graph.bin"))


def test_what_is_whole_is_read(whole, capsys):
    expected = Encoder.from_pretrained(whole, pooling="mean", engine="jax").encode(SENTENCES)
    np.testing.assert_allclose(encode(whole), expected, atol=0.05)
    assert verified(whole, capsys)["int8"]["ok"]


def verified(model, capsys):
    """The checks of `jaxwhiten verify`, by name."""
    checks = {name: verification.CHECKS[name] for name in ("texts apart", "int8")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "CHECKS", checks)
        code = cli.main(["verify", str(model), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["ok"] else 1)
    return {check["name"]: check for check in report["checks"]}


def cut(path, length):
    path.write_bytes(path.read_bytes()[:length])


FILES = {
    "empty graph": lambda folder: cut(folder / GRAPH, 0),
    "graph cut": lambda folder: cut(folder / GRAPH, 5000),
    "graph of other text": lambda folder: (folder / GRAPH).write_text("not a graph"),
    "other XML": lambda folder: (folder / GRAPH).write_text("<net name='x' version='11'></net>"),
    "weights cut": lambda folder: cut(folder / WEIGHTS, 1000),
    "no weights": lambda folder: cut(folder / WEIGHTS, 0),
    "an unknown operator": lambda folder: (folder / GRAPH).write_text(
        (folder / GRAPH).read_text().replace('type="MatMul"', 'type="MatSum"')
    ),
    "an offset beyond the weights": lambda folder: (folder / GRAPH).write_text(
        (folder / GRAPH).read_text().replace('offset="', 'offset="99999999')
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_files_that_openvino_cannot_read(copied, what):
    FILES[what](copied / "openvino")
    sealed(copied)
    refused(copied)


def refused(model):
    with pytest.raises(
        ModelError, match=r"model/openvino/int8\.xml: not the int8 weights of this model .*export them again"
    ):
        encode(model)


def graph(ov, **changes):
    """A graph with the right inputs and outputs, but for the changes, that gives other vectors."""
    how = {"inputs": ["input_ids", "attention_mask"], "kind": "i64", "shape": [-1, -1], "width": WIDTH}
    how |= {"state": lambda x: x, "states": [hidden_state(i) for i in range(STATES)]} | changes
    op = ov.opset13
    inputs = [op.parameter(how["shape"], getattr(ov.Type, how["kind"]), name) for name in how["inputs"]]
    for node, name in zip(inputs, how["inputs"], strict=True):
        node.output(0).get_tensor().set_names({name})
    table = op.constant(np.random.default_rng(0).normal(size=(200, how["width"])).astype(np.float32))
    used = op.convert(inputs[0], "i64")
    for other in inputs[1:]:
        used = op.add(used, op.multiply(op.convert(other, "i64"), op.constant(np.int64(0))))
    state = how["state"](op.gather(table, used, op.constant(np.int64(0))))
    results = [op.result(state) for _ in how["states"]]
    for result, name in zip(results, how["states"], strict=True):
        result.output(0).get_tensor().set_names({name} if name else set())
    return ov.Model(results, inputs)


def sized(*shape):
    def reshape(x):
        import openvino

        return openvino.opset13.reshape(x, openvino.opset13.constant(np.array(shape, np.int64)), False)

    return reshape


def as_type(kind):
    def convert(x):
        import openvino

        return openvino.opset13.convert(x, kind)

    return convert


def same_shape_but_fails(x):
    import openvino

    op = openvino.opset13
    return op.add(x, op.reduce_sum(sized(7, 3, WIDTH)(x), op.constant(np.int64(0)), False))


GRAPHS = {
    "other names of inputs": {"inputs": ["a", "b"]},
    "one input": {"inputs": ["input_ids"]},
    "an input more": {"inputs": ["input_ids", "attention_mask", "token_type_ids"]},
    "inputs of floats": {"kind": "f32"},
    "inputs of int32": {"kind": "i32"},
    "inputs of rank 1": {"shape": [-1]},
    "inputs of rank 3": {"shape": [-1, -1, -1]},
    "inputs of one size": {"shape": [2, 8]},
    "no names of outputs": {"states": [""]},
    "other names of outputs": {"states": ["logits"]},
    "states of another width": {"width": 48},
    "states of half precision": {"state": as_type("f16")},
    "states of integers": {"state": as_type("i32")},
    "states of rank 2": {"state": sized(-1, WIDTH)},
    "states of one size": {"state": sized(2, 8, WIDTH)},
    "sizes that fail when it runs": {"state": same_shape_but_fails},
}


@pytest.mark.parametrize("what", GRAPHS)
def test_graphs_of_something_else(ov, copied, capsys, what):
    ov.save_model(graph(ov, **GRAPHS[what]), copied / "openvino" / GRAPH, compress_to_fp16=False)
    sealed(copied)
    refused(copied)
    check = verified(copied, capsys)["int8"]
    assert check["ok"] is False
    assert "int8.xml: not the int8 weights of this model" in check["detail"]


def test_verify_notices_another_model(ov, copied, capsys):
    ov.save_model(graph(ov), copied / "openvino" / GRAPH, compress_to_fp16=False)
    sealed(copied)
    assert encode(copied).shape == (len(SENTENCES), WIDTH)
    check = verified(copied, capsys)["int8"]
    assert check["ok"] is False
    assert check["difference"] > 0.2


def test_verify_leaves_graphs_of_others_alone(copied, capsys):
    """Folders of sentence-transformers have `openvino/openvino_model.xml`."""
    (copied / "openvino" / HEADER).unlink()
    check = verified(copied, capsys)["int8"]
    assert (check["ok"], check["detail"]) == (None, "the folder has no int8 weights")


@pytest.mark.parametrize(
    ("name", "value"), [("sha256", 3), ("sha256", {}), ("longest", "x"), ("longest", 1e999), ("longest", None)]
)
def test_headers_of_another_kind(copied, name, value):
    file = copied / "openvino" / HEADER
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    with pytest.raises(ModelError, match="damaged int8 weights"):
        encode(copied)
    for text in ("", "[]", "[" * 100_000, "null"):
        file.write_text(text)
        with pytest.raises(ModelError, match="damaged int8 weights"):
            encode(copied)


@pytest.mark.parametrize("name", [HEADER, GRAPH, WEIGHTS])
def test_a_link_that_leaves_the_folder(copied, tmp_path, name):
    file = copied / "openvino" / name
    file.rename(tmp_path / name)
    file.symlink_to(tmp_path / name)
    with pytest.raises(ModelError, match="a link that leaves the folder"):
        Quantised.read(copied, "", 8)
    file.unlink()
    with pytest.raises(JaxwhitenError, match=r"has no int8 weights|damaged int8 weights"):
        encode(copied)
