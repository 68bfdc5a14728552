"""What OpenVINO keeps between processes: equal vectors, keyed by the weights, and no JAX in a later process."""

import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening, build_index
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.engines import forward, kept
from jaxwhiten.head import Head, leaves
from jaxwhiten.models import folders
from tests.conftest import ONE_DEVICE

pytest.importorskip("openvino")
HEAVY = ("jax", "jaxlib", "flax", "transformers", "onnx", "scipy", "matplotlib", "ml_collections", "huggingface_hub")
HEAVY += ("jaxtyping", "importlib.metadata")
TEXTS = ["A man plays a guitar.", "Birds wait on a wire, in the rain.", "No."]
ENCODE = """
import sys
from jaxwhiten import Encoder
encoder = Encoder.from_pretrained({folder!r}, pooling="mean")
vectors = encoder.encode({texts!r}).tolist(), encoder.encode({texts!r}[0]).tolist()
codes = encoder.encode({texts!r}, precision="ubinary").tolist()
"""
SEARCH = "import sys; from jaxwhiten.commands.cli import main; main(['search', {index!r}, 'A man.', '-k', '1'])"
TELL = "\nimport json; print(json.dumps([sorted(set({heavy!r}) & set(sys.modules)), {rest}]))"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    return shutil.copytree(folders.resolve_folder("jaxwhiten-tiny"), tmp_path / "model")


def process(code, rest):
    text = code + TELL.format(heavy=HEAVY, rest=rest)
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_later_process_imports_nothing_heavy_and_gives_the_same_vectors(folder):
    code = ENCODE.format(folder=str(folder), texts=TEXTS)
    first, later = (process(code, "[vectors, encoder.fingerprint, codes]") for _ in range(2))
    assert "jax" in first[0]
    assert later == [[], first[1]]
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="float32")
    vectors = encoder.encode(TEXTS)
    codes = np.packbits(vectors > 0, axis=1).tolist()
    assert later[1] == [[vectors.tolist(), encoder.encode(TEXTS[0]).tolist()], encoder.fingerprint, codes]
    assert encoder.fingerprint == Encoder.from_pretrained(folder, pooling="mean", engine="jax").fingerprint
    assert encoder.model().config == encoder.config


TRACED = """
import jax
traced = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: traced.append(event) if "trace" in event or "compile" in event else None
)
"""


@pytest.fixture
def jax_process(folder, monkeypatch):
    """Runs a process with the engine JAX on one device: the parts of Flax that it imports, and what it found."""
    monkeypatch.setenv("XLA_FLAGS", ONE_DEVICE)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("JAXWHITEN_ENGINE", "jax")

    def run(rest="len(traced), vectors, encoder.fingerprint, codes"):
        found, (traced, *told) = process(TRACED + ENCODE.format(folder=str(folder), texts=TEXTS), f"[{rest}]")
        return "flax" in found, traced > 0, told

    return run


def test_a_later_process_with_jax_traces_nothing_and_gives_the_same_vectors(jax_process, folder):
    first, later = jax_process(), jax_process()
    assert first[:2] == (True, True)
    assert later == (False, False, first[2])
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="jax")
    np.testing.assert_allclose(later[2][0][0], encoder.encode(TEXTS), atol=1e-6)
    assert later[2][1:] == [encoder.fingerprint, np.packbits(np.array(later[2][0][0]) > 0, axis=1).tolist()]
    assert Encoder.from_pretrained(folder, pooling="mean", engine="openvino").fingerprint == encoder.fingerprint


def in_jax(folder):
    return Encoder.from_pretrained(folder, pooling="mean", engine="jax").encode(TEXTS[2])


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"", lambda data: data[:40] + b"?" + data[41:]]
)
def test_a_damaged_program_is_compiled_again(damage, folder, tmp_path, caplog, monkeypatch):
    vectors = in_jax(folder)
    (file,) = (tmp_path / "cache").rglob("program")
    file.write_bytes(damage(file.read_bytes()))
    np.testing.assert_array_equal(in_jax(folder), vectors)
    assert "not used, compiled again" in caplog.text
    monkeypatch.setattr(forward, "for_keeping", None)
    np.testing.assert_array_equal(in_jax(folder), vectors)


def test_other_settings_have_programs_of_their_own(folder, tmp_path, monkeypatch):
    before = jax.config.jax_default_matmul_precision
    try:
        for number, (name, value) in enumerate(
            [("NPROC", "2"), ("NPROC", "1"), ("XLA_FLAGS", "--xla_cpu_max_isa=AVX")]
        ):
            monkeypatch.setenv(name, value)
            in_jax(folder)
            assert len(list((tmp_path / "cache").rglob("program"))) == number + 1
        jax.config.update("jax_default_matmul_precision", "bfloat16")
        in_jax(folder)
        assert len(list((tmp_path / "cache").rglob("program"))) == 4
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_a_search_imports_nothing_heavy(folder, tmp_path):
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="float32")
    index = build_index(encoder.encode(TEXTS), encoding=encoder.encoding(), documents=TEXTS)
    index.save(tmp_path / "index")
    code = SEARCH.format(index=str(tmp_path / "index"))
    process(code, "0")
    assert process(code, "0") == [[], 0]


def test_other_weights_are_another_entry(folder):
    reading = {"pooling": "mean", "engine": "openvino", "dtype": "float32"}
    before = Encoder.from_pretrained(folder, **reading)
    vectors = before.encode(TEXTS)
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "word_embeddings" in name)
    tensors[name] = tensors[name][::-1].copy()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    after = Encoder.from_pretrained(folder, **reading)
    assert np.abs(after.encode(TEXTS) - vectors).max() > 1e-3
    assert after.fingerprint != before.fingerprint
    in_jax = Encoder.from_pretrained(folder, pooling="mean", engine="jax").encode(TEXTS)
    np.testing.assert_allclose(after.encode(TEXTS), in_jax, atol=2e-5)


def test_a_damaged_graph_is_made_again(folder, tmp_path):
    reading = {"pooling": "mean", "engine": "openvino", "dtype": "float32"}
    vectors = Encoder.from_pretrained(folder, **reading).encode(TEXTS)
    graphs = list((tmp_path / "cache").rglob("graph.xml"))
    assert graphs
    for file in graphs:
        file.write_text("damaged")
    assert np.array_equal(Encoder.from_pretrained(folder, **reading).encode(TEXTS), vectors)
    assert all(file.read_text() != "damaged" for file in (tmp_path / "cache").rglob("graph.xml"))


def test_what_was_used_last_is_kept(folder, tmp_path, monkeypatch):
    reading = {"pooling": "mean", "engine": "openvino", "max_length": 16}
    vectors = Encoder.from_pretrained(folder, **reading).encode(TEXTS)
    entries = tmp_path / "cache" / "compiled"
    (before,) = entries.iterdir()
    assert list(before.rglob("*.blob"))
    monkeypatch.setattr(kept, "MOST", 1.5 * sum(file.stat().st_size for file in before.rglob("*.*")))
    other = shutil.copytree(folder, tmp_path / "other")
    said = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(said | {"pad_token_id": 1}))
    Encoder.from_pretrained(other, **reading).encode(TEXTS)
    (after,) = entries.iterdir()
    assert after != before
    assert np.array_equal(Encoder.from_pretrained(folder, **reading).encode(TEXTS), vectors)
    assert list(entries.iterdir()) == [before]


def test_nothing_is_kept_where_nobody_wants_it(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")
    Encoder.from_pretrained(folder, pooling="mean", engine="openvino").encode(TEXTS)
    assert kept.Kept.of(folder) is None
    assert not (tmp_path / "cache" / "compiled").exists()


@pytest.mark.parametrize("name", ["mean", "layers:0+1", "ditto:0+1"])
def test_leaves_are_those_of_jax(name):
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    whitening, code = Whitening(8).fit(x), SpectrumCode(bytes=4).fit(Moments().update(x))
    from jaxwhiten.head import Whiten, code_steps

    steps = Head.named(name).then(Whiten.of(whitening), *code_steps(code)).steps
    expected = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree.leaves_with_path(steps)]
    found = list(leaves(steps))
    assert [path for path, _ in found] == [path for path, _ in expected]
    assert all(a is b for (_, a), (_, b) in zip(found, expected, strict=True))
