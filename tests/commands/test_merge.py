"""`jaxwhiten merge`: moments of parts are those of the whole; parts that do not belong together are refused."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening


def test_parts_make_the_whole(run, tiny_model, corpus, whitening_file, tmp_path):
    lines = corpus.read_text(encoding="utf-8").splitlines()
    parts = []
    for number, part in enumerate((lines[:50], lines[50:400], lines[400:])):
        (tmp_path / f"part{number}.txt").write_text("\n".join(part), encoding="utf-8")
        parts.append(tmp_path / f"{number}.safetensors")
        words = ("--model", tiny_model, "--pooling", "mean", "--max-length", 32, "--moments", parts[-1])
        assert run("fit", tmp_path / f"part{number}.txt", *words).code == 0
    out = tmp_path / "all.safetensors"
    done = run("merge", *parts, "--moments", out, "--output", tmp_path / "w.safetensors", "-k", 16)
    assert done.code == 0, done.err
    merged, whole = Moments.load(out), Moments.load(whitening_file.parent / "moments.safetensors")
    assert merged.n == 600
    np.testing.assert_allclose(merged.covariance(), whole.covariance(), atol=1e-5)
    assert merged.provenance["corpus"] == "part0.txt + part1.txt + part2.txt"
    assert merged.provenance["fingerprint"] == whole.provenance["fingerprint"]
    x = np.random.default_rng(0).normal(size=(5, 32)).astype(np.float32)
    expected = Whitening.load(whitening_file).transform(x)
    np.testing.assert_allclose(Whitening.load(tmp_path / "w.safetensors").transform(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"pooling": "cls"}, "b: expected pooling='cls', got 'mean'. Encode"), ({}, "sum expects 4 dimensions")],
)
def test_parts_of_other_vectors_are_refused(run, tmp_path, change, message):
    rows = np.random.default_rng(0).normal(size=(100, 4))
    Moments().update(rows).save(tmp_path / "a", {"pooling": "mean"})
    Moments().update(rows if change else rows[:, :3]).save(tmp_path / "b", change)
    done = run("merge", tmp_path / "a", tmp_path / "b", "--moments", tmp_path / "c")
    assert (done.code, message in done.err, done.err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "c").exists()


def test_a_whitening_is_not_moments(run, whitening_file, tmp_path):
    done = run("merge", whitening_file, "--moments", tmp_path / "c")
    assert (done.code, "contains a 'whitening', not a 'moments'" in done.err) == (2, True)
    assert "Nothing to write" in run("merge", whitening_file).err
