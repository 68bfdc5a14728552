"""`jaxwhiten train`: a table in, a model folder out, with figures and a verdict."""

import json
import re

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.training import OBJECTIVES
from tests.sentences import generated

FAST = ["--max-length", 16, "--batch-size", 8, "--learning-rate", "1e-3"]


@pytest.fixture
def pairs(tmp_path):
    texts = generated(120)
    rows = map("\t".join, zip(texts[:60], texts[60:], strict=True))
    (tmp_path / "pairs.tsv").write_text("\n".join(["question\tanswer", *rows]) + "\n")
    return tmp_path / "pairs.tsv"


def test_help_lists_the_objectives(run):
    assert set(OBJECTIVES) <= set(re.findall(r"\w+", run("train", "--help").out.partition("--objective OBJECTIVE")[2]))


@pytest.mark.slow
def test_pairs_give_a_model_folder_with_figures_and_a_verdict(run, pairs, shallow_model, tmp_path):
    done = run("train", pairs, "--model", shallow_model, "-o", tmp_path / "tuned", "--held-out", 0.3, *FAST)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "held-out rows; MRR@10 × 100" in lines[0]
    assert [line.split()[0] for line in lines[3:6]] == ["before", "after", "TF-IDF"]
    assert lines[-1].startswith("Training ")
    folder = tmp_path / "tuned.training"
    results = json.loads((folder / "results.json").read_text())
    assert f"{results['scores']['held-out MRR@10']:.2f}" in lines[4]
    assert "learning_rate" in results["recipe"]
    base, tuned = (Encoder.from_pretrained(path, pooling="mean") for path in (shallow_model, tmp_path / "tuned"))
    assert np.abs(base.encode(generated(3)) - tuned.encode(generated(3))).max() > 1e-3
    assert "| held-out MRR@10, base model |" in (tmp_path / "tuned" / "README.md").read_text()
    assert run("score", folder / "held_out.tsv", "--model", tmp_path / "tuned").code == 0
    assert run("encode", pairs, "--column", "answer", "--model", tmp_path / "tuned", "-o", tmp_path / "x.npy").code == 0
