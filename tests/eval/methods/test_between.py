"""The map between encoders: closed forms, merging, files, and the strength."""

import numpy as np
import pytest

from eval.methods import CrossMoments, EncoderMap
from jaxwhiten.errors import FormatError, InputError, MismatchError, NonFiniteError, NotFittedError
from jaxwhiten.io import load_tensors, save_tensors


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((900, 10))
    x = hidden @ rng.standard_normal((10, 12)) + 0.3 * rng.standard_normal((900, 12)) + 3
    y = hidden @ rng.standard_normal((10, 9)) + 0.3 * rng.standard_normal((900, 9)) - 1
    return x.astype(np.float32), y.astype(np.float32)


def strength(mapped):
    return mapped.tensors()["strength"].item()


def partners(mapped, x, y):
    """How many of y find their x first."""
    a, b = (
        part / np.linalg.norm(part, axis=1, keepdims=True) for part in (mapped.transform(x), mapped.transform_target(y))
    )
    return (np.argmax(b @ a.T, axis=1) == np.arange(len(x))).mean()


@pytest.mark.parametrize("kind", ["ridge", "procrustes", "cca"])
def test_two_halves_merged_are_all_pairs(kind, pairs):
    x, y = pairs
    halves = [CrossMoments(12).update(x[part], y[part]) for part in (slice(0, 300), slice(300, None))]
    whole = EncoderMap(kind=kind).fit(CrossMoments(12).update(x, y))
    merged = EncoderMap(kind=kind).fit(halves[1].merge(halves[0]))
    parts = EncoderMap(kind=kind, strength=0.1).fit(x, y)
    x, y = x.astype(np.float64), y.astype(np.float64)
    for other in (merged, parts):
        assert other.n_samples_seen_ == 900
        np.testing.assert_allclose(abs(other.transform(x)), abs(whole.transform(x)), rtol=1e-9, atol=1e-12)
        products = (moments.transform(x[:50]) @ moments.transform_target(y[:50]).T for moments in (other, whole))
        first, second = products
        assert abs(first - second).max() <= 1e-12 * abs(second).max()


def test_closed_forms(pairs):
    x, y = (part.astype(np.float64) - part.astype(np.float64).mean(axis=0) for part in pairs)
    ridge = EncoderMap(kind="ridge", strength=0.5).fit(*pairs)
    penalty = 0.5 * np.trace(x.T @ x) / 12
    weight = np.linalg.solve(x.T @ x + penalty * np.eye(12), x.T @ y)
    np.testing.assert_allclose(ridge.transform(pairs[0].astype(np.float64)), x @ weight, atol=1e-6)
    rotation = (
        EncoderMap(kind="procrustes").fit(pairs[0][:, :9], pairs[1]).transform(pairs[0][:, :9].astype(np.float64))
    )
    from scipy.linalg import orthogonal_procrustes

    np.testing.assert_allclose(rotation, x[:, :9] @ orthogonal_procrustes(x[:, :9], y)[0], atol=1e-6)
    cca = EncoderMap(kind="cca", strength=0.0).fit(*pairs)
    a, b = cca.transform(pairs[0].astype(np.float64)), cca.transform_target(pairs[1].astype(np.float64))
    weights = np.linalg.norm(a, axis=0) / 30  # directions of unit variance, each times its correlation
    np.testing.assert_allclose((a * b).mean(axis=0), weights**3, atol=1e-6)
    np.testing.assert_allclose(a.T @ a / 900, np.diag(weights**2), atol=1e-6)


@pytest.mark.parametrize("kind", ["ridge", "procrustes", "cca"])
def test_texts_find_each_other_also_from_a_file(kind, pairs, tmp_path):
    x, y = pairs
    mapped = EncoderMap(kind=kind).fit(x[:600], y[:600])
    assert partners(mapped, x[600:], y[600:]) > {"ridge": 0.7, "procrustes": 0.25, "cca": 0.9}[kind]
    mapped.save(tmp_path / "map", provenance={"model": "old"})
    loaded = EncoderMap.load(tmp_path / "map")
    assert (loaded.kind, strength(loaded), loaded.n_samples_seen_) == (kind, strength(mapped), 600)
    np.testing.assert_array_equal(loaded.transform(x), mapped.transform(x))


def test_the_strength_is_chosen_on_held_out_pairs():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 40)).astype(np.float32)
    noisy = (x @ rng.standard_normal((40, 40)) + 5 * rng.standard_normal((60, 40))).astype(np.float32)
    clean = (x @ rng.standard_normal((40, 40))).astype(np.float32)
    assert strength(EncoderMap().fit(x, noisy)) > strength(EncoderMap().fit(np.tile(x, (9, 1)), np.tile(clean, (9, 1))))


def test_refusals(pairs, tmp_path):
    x, y = pairs
    mapped = EncoderMap().fit(x, y)
    before = mapped.transform(x)
    for arguments, error in (
        ((x,), InputError),
        ((x, y[:5]), InputError),
        ((np.full_like(x, np.nan), y), NonFiniteError),
    ):
        with pytest.raises(error):
            mapped.fit(*arguments)
    with pytest.raises(MismatchError, match="expects 21 dimensions, got 17"):
        CrossMoments(12).update(x, y).merge(CrossMoments(12).update(x, y[:, :5]))
    with pytest.raises(InputError, match="Did you mean 'ridge'"):
        EncoderMap(kind="rigde").fit(x, y)
    with pytest.raises(NotFittedError):
        EncoderMap().transform(x)
    np.testing.assert_array_equal(mapped.transform(x), before)
    mapped.save(tmp_path / "map")
    tensors, header = load_tensors(tmp_path / "map", kind="encoder-map")
    del tensors["strength"]
    save_tensors(tmp_path / "bad", tensors, kind="encoder-map", header={"provenance": header["provenance"]})
    with pytest.raises(FormatError, match="Rewrite it"):
        EncoderMap.load(tmp_path / "bad")
