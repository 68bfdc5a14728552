"""What is kept of a model between processes: equal vectors, keyed by the weights, and no JAX in one with OpenVINO."""

import functools
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, build_index
from jaxwhiten.engines import cache
from jaxwhiten.errors import ModelError
from jaxwhiten.models import folders
from tests.conftest import slow_but

pytest.importorskip("openvino")
pytestmark = pytest.mark.usefixtures("cached")
HEAVY = ("jax", "jaxlib", "flax", "transformers", "onnx", "scipy", "matplotlib", "huggingface_hub")
HEAVY += ("jaxtyping", "importlib.metadata")
WEIGHTS = "model.safetensors"
TEXTS = ["A man plays a guitar.", "Birds wait on a wire, in the rain.", "No."]
ENCODE = """
import sys
from jaxwhiten import Encoder
encoder = Encoder.from_pretrained({folder!r}, pooling="mean")
vectors = encoder.encode({texts!r}).tolist(), encoder.encode({texts!r}[0]).tolist()
"""
SEARCH = "import sys; from jaxwhiten.commands.cli import main; main(['search', {index!r}, 'A man.', '-k', '1'])"
TELL = "\nimport json; print(json.dumps([sorted(set({heavy!r}) & set(sys.modules)), {rest}]))"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    return shutil.copytree(folders.resolve_folder("jaxwhiten-tiny"), tmp_path / "model")


@pytest.fixture
def small(folder, shallow_model, tmp_path):
    """A model of one layer in its place, with a cache as for `folder`."""
    shutil.rmtree(folder)
    return shutil.copytree(shallow_model, folder)


def process(code, rest):
    text = code + TELL.format(heavy=HEAVY, rest=rest)
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_later_process_imports_nothing_heavy_and_gives_the_same_vectors(folder):
    code = ENCODE.format(folder=str(folder), texts=TEXTS)
    first, later = (process(code, "[vectors, encoder.view.fingerprint]") for _ in range(2))
    assert "jax" in first[0]
    assert later == [[], first[1]]
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="float32")
    vectors = encoder.encode(TEXTS)
    assert later[1] == [[vectors.tolist(), encoder.encode(TEXTS[0]).tolist()], encoder.view.fingerprint]


@pytest.mark.slow
def test_other_processors_have_compiled_forms_of_their_own(small, tmp_path, monkeypatch):
    """A cache may be shared by machines, and oneDNN be told to use fewer instructions."""
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path))
    encoder_of = functools.partial(Encoder.from_pretrained, small, pooling="mean", engine="openvino")
    counts = []
    for features, limit in (("one", ""), ("one", ""), ("other", ""), ("other", "AVX2")):
        monkeypatch.setattr(cache, "cpu_features", lambda features=features: features)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        encoder_of().encode(["A dog runs."])
        counts.append(len(list(tmp_path.rglob("*.blob"))))
    assert counts == [1, 1, 2, 3]
    assert len(list(tmp_path.rglob("graph.bin"))) == 1


@pytest.mark.slow
def test_a_search_imports_nothing_heavy(folder, tmp_path):
    encoder = Encoder.from_pretrained(folder, pooling="mean", engine="openvino", dtype="float32")
    index = build_index(encoder.encode(TEXTS), space=encoder.view.space, documents=TEXTS)
    index.save(tmp_path / "index")
    code = SEARCH.format(index=str(tmp_path / "index"))
    process(code, "0")
    assert process(code, "0") == [[], 0]


DAMAGES = {
    "flipped": lambda data: data[:-3] + bytes([data[-3] ^ 4]) + data[-2:],
    "cut": lambda data: data[:-3],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("engine", slow_but(["openvino", "jax"], "openvino"))
def test_what_is_damaged_is_made_again_with_one_warning(small, tmp_path, engine, damage, monkeypatch):
    """Texts, graphs and their weights."""
    monkeypatch.setattr("jaxwhiten.io.cache._SMALL", 1)  # the way of large files
    monkeypatch.setattr("jaxwhiten.io.cache._TICK", -(10**10))
    kinds = {"openvino": [{"text.txt"}, {"graph.xml", "graph.bin"}], "jax": [{"text.txt"}]}

    def results():
        encoder = Encoder.from_pretrained(small, pooling="mean", engine=engine)
        return encoder.view.fingerprint, encoder.encode(TEXTS[0]).tolist()

    expected = results()
    for names in kinds[engine]:
        files = [file for file in (tmp_path / "cache" / "compiled").rglob("*") if file.name in names]
        assert {file.name for file in files} == names
        for file in files:
            file.write_bytes(DAMAGES[damage](file.read_bytes()))
        with pytest.warns(UserWarning, match="damaged .*: recomputing") as warned:
            assert results() == expected
        damaged = sorted({str(file.parent) for file in files})
        assert sorted(str(each.message).split(":")[0] for each in warned) == damaged
    assert results() == expected


def replaced(folder, place):
    """Swaps the folder with another one, whose weights have equal sizes and times."""
    os.rename(folder, place / "aside")
    os.rename(place / "model of others", folder)
    os.rename(place / "aside", place / "model of others")


@pytest.fixture
def others(small, tmp_path):
    """A folder like that of the model, with other weights."""
    from safetensors.numpy import load_file, save_file

    other = shutil.copytree(small, tmp_path / "model of others")
    tensors = load_file(small / WEIGHTS)
    words = next(name for name in tensors if "word_embeddings" in name)
    for folder in (small, other):
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        os.utime(folder / WEIGHTS, (1e9, 1e9))
        tensors[words] = tensors[words][::-1].copy()
    return other


@pytest.mark.parametrize("engine", slow_but(["openvino", "jax", "auto"], "openvino", "auto"))
@pytest.mark.parametrize("known", [False, True])
def test_a_folder_that_is_replaced_while_an_encoder_reads_it(small, others, tmp_path, engine, known, monkeypatch):
    """After the hash of the weights, or after config.json was read to choose an engine: no vectors are of both folders,
    and nothing is kept of them."""
    reading = {"pooling": "mean", "engine": engine}
    if known:  # that it can be read is kept, and the weights are read later
        Encoder.from_pretrained(small, **reading)
    expected = Encoder.from_pretrained(small, **reading | {"pooling": "cls"}).encode(TEXTS) if known else None
    of = cache.ModelCache.of

    def then_replaced(where):
        if engine == "auto":
            replaced(small, tmp_path)
            return of(where)
        found = of(where)
        replaced(small, tmp_path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cache.ModelCache, "of", then_replaced)
        with pytest.raises(ModelError, match="changed after the model was loaded: load the model again"):
            Encoder.from_pretrained(small, **reading).encode(TEXTS)
    replaced(small, tmp_path)
    if known:
        assert np.array_equal(Encoder.from_pretrained(small, **reading | {"pooling": "cls"}).encode(TEXTS), expected)
    found = Encoder.from_pretrained(small, **reading)
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")
    anew = Encoder.from_pretrained(small, **reading)
    assert found.view.fingerprint == anew.view.fingerprint
    np.testing.assert_allclose(found.encode(TEXTS), anew.encode(TEXTS), atol=1e-6)


def test_a_folder_that_is_replaced_after_an_encoder_was_made(small, others, tmp_path, monkeypatch):
    """Its weights are read only if something new is compiled, and a later encoder has those of the new folder."""
    monkeypatch.setattr("jaxwhiten.io.cache._TICK", -(10**10))
    vectors = Encoder.from_pretrained(small, pooling="mean", engine="openvino").encode(TEXTS)
    later = Encoder.from_pretrained(small, pooling="mean", engine="openvino")
    replaced(small, tmp_path)
    assert np.array_equal(later.encode(TEXTS), vectors)  # by the graph that is kept
    for new in (lambda: later.encode(TEXTS, pooling="cls"), lambda: later.module):
        with pytest.raises(ModelError, match="changed after the model was loaded"):
            new()
    after = [Encoder.from_pretrained(small, pooling="mean", engine=engine) for engine in ("openvino", "jax")]
    np.testing.assert_allclose(after[0].encode(TEXTS), after[1].encode(TEXTS), atol=2e-5)
    assert np.abs(after[1].encode(TEXTS) - vectors).max() > 1e-3
    assert after[0].view.fingerprint == after[1].view.fingerprint != later.view.fingerprint


def test_a_damaged_compiled_form_is_compiled_again(small, tmp_path):
    """Openvino's own, such as one that a kill left cut."""
    vectors = Encoder.from_pretrained(small, pooling="mean", engine="openvino").encode(TEXTS)
    (blob,) = (tmp_path / "cache").rglob("*.blob")
    blob.write_bytes(DAMAGES["cut"](blob.read_bytes()))
    assert np.array_equal(Encoder.from_pretrained(small, pooling="mean", engine="openvino").encode(TEXTS), vectors)
