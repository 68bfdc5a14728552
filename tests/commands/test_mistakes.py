"""What is not quite as it should be: blank lines, moments given twice, a platform that is absent, huge vectors."""

import shutil

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder, normalize
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index
from tests.tiny import write_model


@pytest.mark.filterwarnings("default")
def test_the_same_moments_twice(run, corpus, tiny_model, tmp_path):
    moments = tmp_path / "m.safetensors"
    run("fit", corpus, "--model", tiny_model, "--pooling", "mean", "--moments", moments)
    shutil.copy(moments, tmp_path / "copy.safetensors")
    done = run("fit", moments, tmp_path / "copy.safetensors", "--moments", tmp_path / "both.safetensors")
    assert done.code == 0
    assert f"warning: {tmp_path}/copy.safetensors: contains the same moments as {moments}" in done.err


def test_blank_lines(run, corpus, tiny_model, tmp_path):
    (tmp_path / "texts.txt").write_text("one\n\ntwo\n  \n")
    model = ("--model", tiny_model, "--pooling", "mean")
    done = run("encode", tmp_path / "texts.txt", *model, "-o", tmp_path / "v.npy")
    assert done.out.endswith("4 32-dimensional vectors\n")
    assert "note: 2 blank texts; encode keeps them, index skips them\n" in done.err
    done = run("index", tmp_path / "texts.txt", *model, "-o", tmp_path / "idx")
    assert (
        "2 texts (2 blank texts skipped; `encode` keeps them: to align the two, remove them from the file)" in done.out
    )


def test_a_platform_that_is_not_there(tiny_model, monkeypatch):
    def devices():
        raise AssertionError

    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "0")  # what was kept would be read without JAX
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(InputError, match="no device of JAX_PLATFORMS=cuda here: unset it"):
        Encoder.from_pretrained(tiny_model, pooling="mean")


def test_what_sentence_transformers_users_type(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    found = encoder.encode(["one"], show_progress_bar=False, convert_to_numpy=True, convert_to_tensor=False)
    np.testing.assert_array_equal(found, encoder.encode(["one"]))
    for wrong in ({"convert_to_tensor": True}, {"convert_to_numpy": False}):
        with pytest.raises(InputError, match=r"call torch\.from_numpy"):
            encoder.encode_query(["one"], **wrong)
    with pytest.raises(InputError, match="Expected a list, one item per sentence, got NoneType"):
        encoder.encode(None)


@pytest.mark.parametrize("scale", [1e20, 1e-24])
@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_vectors_that_float32_cannot_square(backend, scale):
    if backend != "jax":
        pytest.importorskip("faiss")
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    index = build_index(x, backend)
    with pytest.raises(InputError, match=r"Row 0 of the query vectors has norm .*jaxwhiten.normalize"):
        index.search(x * np.float32(scale), 1)
    with pytest.raises(InputError, match=r"Row 0 of the document vectors has norm"):
        build_index(x * np.float32(scale), backend)
    _, ids = index.search(normalize(x * np.float32(scale)), 1)
    assert ids[:, 0].tolist() == list(range(60))


def test_a_model_that_cannot_be_that_of_an_index_is_named(run, tiny_model, corpus, tmp_path):
    of_model = ["--model", tiny_model, "--pooling", "mean"]
    assert run("index", corpus, "-o", tmp_path / "idx", *of_model, "--max-length", 64).code == 0
    short = write_model(tmp_path / "short", max_positions=32)
    done = run("search", tmp_path / "idx", "hello", "--model", short)
    assert done.code == 2
    assert done.err.startswith(f"error: {short}: is not the model of these vectors")
    assert done.err.endswith("reads 3 to 32 tokens): specify theirs.\n")
