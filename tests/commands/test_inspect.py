"""`jaxwhiten inspect`: text for people, JSON for programs."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxwhiten import Encoder, Moments, Whitening


def test_moments_and_their_whitening_agree(run, whitening_file):
    moments = json.loads(run("inspect", whitening_file.parent / "moments.safetensors", "--json").out)
    whitening = json.loads(run("inspect", whitening_file, "--json").out)
    assert (moments["kind"], whitening["kind"]) == ("moments", "whitening")
    assert (moments["params"], whitening["params"]["n_components"]) == (None, 16)
    for key in ("n", "dimension", "rank", "explained"):
        assert moments[key] == whitening[key]
    np.testing.assert_allclose(whitening["eigenvalues"], Whitening.load(whitening_file).eigenvalues_)
    shown = dict(line.split(maxsplit=1) for line in run("inspect", whitening_file).out.splitlines())
    assert (shown["kind"], shown["n"]) == ("whitening", "600")
    assert shown["provenance"].endswith("pooling mean, max_length 32, corpus corpus.txt")
    assert shown["explained"].endswith("32 100.00%")


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
def test_numbers_json_does_not_have_are_null(run, tmp_path):
    Moments().update(np.ones((50, 3))).save(tmp_path / "m")
    report = json.loads(run("inspect", tmp_path / "m", "--json").out)
    assert (report["rank"], report["condition"], report["before"]["participation_ratio"]) == (0, None, None)
    assert run("inspect", tmp_path / "m").code == 0


def test_a_model_folder(run, tmp_path, tiny_model):
    folder = Encoder.from_pretrained(tiny_model, pooling="cls", max_length=24).save(tmp_path / "model")
    head = {"cls.predictions.bias": np.zeros(200, np.float32), "lm_head.bias": np.zeros(200, np.float32)}
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors")
    told = json.loads(run("inspect", folder, "--json").out)
    assert (told["kind"], told["model_type"], told["num_layers"]) == ("model", "bert", 2)
    assert (told["head"], told["max_length"], told["unused"]) == ("cls", 24, {"cls": 1, "lm_head": 1})
    shown = run("inspect", folder)
    assert (shown.code, shown.err) == (0, "")
    assert "unused      cls 1, lm_head 1" in shown.out
    assert "prompts     none" in shown.out
    none = run("inspect", tiny_model)
    assert ("head        none" in none.out, "unused      none" in none.out) == (True, True)
