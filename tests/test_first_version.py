"""What version 0.1 wrote is read, gives what it gave, and goes on; its codes included a whitening and unit length."""

import json

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.arrays import normalize
from jaxwhiten.codes import load_code, load_first_version
from jaxwhiten.errors import FormatError
from jaxwhiten.search import load_index
from tests.data.first_version import KINDS, N


@pytest.fixture(scope="module")
def results(first_version):
    with np.load(first_version / "results.npz") as file:
        return dict(file)


def check(index, results, name):
    """Scores are those of version 0.1, and ids where no other document has the score."""
    scores, ids = index.search(results["queries"], 10)
    wanted = results[f"{name}scores"]
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    apart = np.diff(wanted, axis=1, prepend=np.inf, append=-np.inf) < -2e-5
    alone = apart[:, :-1] & apart[:, 1:]
    alone[:, -1] = False  # the next document is not known
    assert alone.any() or "binary" in name
    np.testing.assert_array_equal(ids[alone], results[f"{name}ids"][alone])
    for row in (0, 7):
        one = index.search(results["queries"][row : row + 1], 10)
        np.testing.assert_allclose(one[0][0], scores[row], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_gives_its_old_results_grows_and_shrinks(first_version, results, kind, tmp_path):
    if not kind.startswith("jax"):
        pytest.importorskip("faiss")
    index = load_index(first_version / kind)
    check(index, results, f"{kind}.")
    index.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "header.json").read_text())["codes"] == index.codes
    again = load_index(tmp_path / "again")
    check(again, results, f"{kind}.")
    again.add(results["more"])
    check(again, results, f"{kind}.more_")
    again.save(tmp_path / "again")
    again = load_index(tmp_path / "again")
    check(again, results, f"{kind}.more_")
    again.remove(np.arange(N, N + len(results["more"])))
    check(again, results, f"{kind}.")
    assert index.backend == ("jax" if kind.startswith("jax") else KINDS[kind][0].replace("fast", "flat"))


def test_a_model_folder_gives_its_old_codes_also_when_it_is_saved_again(first_version, results, tmp_path):
    texts = json.loads((first_version / "texts.json").read_text())
    encoder = Encoder.from_pretrained(first_version / "model", engine="jax")
    encoder.save(tmp_path / "again")
    for one in (encoder, Encoder.from_pretrained(tmp_path / "again", engine="jax")):
        codes = one.encode(texts[:20])
        np.testing.assert_array_equal(codes, results["model.codes"])
        vectors = one.without_code().encode(texts[:20])
        np.testing.assert_allclose(vectors, results["model.vectors"], atol=1e-5)
        assert codes.space == vectors.space
        cosines = (normalize(codes.decode()) * normalize(vectors)).sum(axis=1)
        assert cosines.mean() > 0.85
        index = one.index(texts[:40], backend="jax")
        hits = index.search(texts[40:44], 5)
        found = one.head.code.scores(one.without_code().encode(texts[40:44]), one.encode(texts[:40]))
        np.testing.assert_allclose([[hit.score for hit in row] for row in hits], -np.sort(-found)[:, :5], atol=1e-5)
        shared = [len({hit.id for hit in row} & set(old)) for row, old in zip(hits, results["model.ids"], strict=True)]
        assert np.mean(shared) >= 4  # the order was the cosine to first order


def test_a_code_file_is_read_as_a_whitening_and_a_code_or_refused_with_advice(first_version, results):
    whitening, code = load_first_version(first_version / "code.safetensors")
    x = normalize(whitening.transform(results["queries"]))
    np.testing.assert_allclose(x, results["code.mapped"], atol=1e-5)
    np.testing.assert_array_equal(code.encode(x), results["code.codes"])
    with pytest.raises(FormatError, match=r"0\.1, whose codes whitened vectors: fit it again with `jaxwhiten fit`"):
        load_code(first_version / "code.safetensors")


def test_other_files_are_not_of_the_first_version(first_version, tmp_path):
    assert load_first_version(first_version / "model" / "whitening.safetensors") is None
    content = bytearray((first_version / "code.safetensors").read_bytes())
    content[-9] ^= 255
    (tmp_path / "code").write_bytes(content)
    assert load_first_version(tmp_path / "code") is None
    with pytest.raises(FormatError, match="checksum"):
        load_code(tmp_path / "code")
