"""`python -m train.mlm` as users run it: the whole way, killed and resumed, from random weights and from a model."""

import json
import signal

import numpy as np
import pytest

from configs.settings import MLM
from jaxwhiten import Encoder
from jaxwhiten.errors import DataNotFoundError, InputError, MismatchError
from tests.conftest import own_cache
from tests.programs.runs import finish, model_bytes, start, steps_of, when, write_text
from tests.tiny import SENTENCES
from train import mlm


@pytest.fixture
def arguments(tmp_path):
    return {
        "data": str(write_text(tmp_path / "text.txt")),
        "held_out": "0.1",
        "sizes.num_layers": "1",
        "sizes.hidden_size": "32",
        "sizes.intermediate_size": "64",
        "vocabulary.size": "150",
        "vocabulary.alphabet": "40",
        "block_length": "16",
        "dropout": "0.1",
        "batch_size": "8",
        "steps": "150",
        "learning_rate": "1e-3",
        "evaluate_every": "50",
        "evaluate_blocks": "16",
        "save_every": "25",
        "log_every": "1",
        "output": str(tmp_path / "run"),
    }


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(arguments, tmp_path):
    """Masks, order and dropout go on as if nothing had happened; vocabulary and tokens are made anew."""
    whole = finish(start("mlm", {**arguments, "output": tmp_path / "whole"}, own_cache(tmp_path / "cache")))
    assert "model written from step 150" in whole

    process = start("mlm", arguments, own_cache(tmp_path / "cache"))
    when(lambda: len(steps_of(tmp_path / "run")) >= 15, process)
    process.send_signal(signal.SIGTERM)
    assert "stopped at step" in finish(process)
    stopped_at = len(steps_of(tmp_path / "run"))
    assert 15 <= stopped_at < 150

    process = start("mlm", arguments, tmp_path / "another cache")
    when(lambda: len(steps_of(tmp_path / "run")) >= stopped_at + 35, process)
    process.kill()
    process.communicate()
    assert len(steps_of(tmp_path / "run")) < 150

    finish(start("mlm", arguments, own_cache(tmp_path / "cache")))
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "whole")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


# --- in this process ------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    config = MLM()
    config.data, config.output = str(write_text(tmp_path / "text.txt")), str(tmp_path / "run")
    config.held_out, config.block_length, config.batch_size, config.steps = 0.1, 16, 8, 6
    config.sizes.update({"num_layers": 1, "hidden_size": 32, "intermediate_size": 64, "max_positions": 32})
    config.vocabulary.update({"size": 150, "alphabet": 40})
    config.evaluate_blocks, config.progress = 16, False
    return config


def test_the_folder_a_run_leaves(config, tmp_path, capsys):
    config.export_dtype = "float16"
    mlm.main(config)
    out = tmp_path / "run"
    assert {path.name for path in out.iterdir()} >= {
        "model",
        "results.json",
        "metrics.jsonl",
        "loss.png",
        "recipe.json",
    }
    results = json.loads((out / "results.json").read_text())
    assert (results["step"], results["tokens"]) == (6, 6 * 8 * 16)
    assert results["scores"]["held-out loss"] == pytest.approx(np.log(150), abs=0.1)
    card = (out / "model" / "README.md").read_text()
    for fact in ("tokens seen | 768 |", "hardware |", "held-out loss |", '"learning_rate": 0.0001', "random weights"):
        assert fact in card
    assert str(tmp_path) not in card
    assert "model written from step 6" in capsys.readouterr().out
    vectors = Encoder.from_pretrained(out / "model", pooling="mean", max_length=16).encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), 32)
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    peer, report = transformers.AutoModelForMaskedLM.from_pretrained(out / "model", output_loading_info=True)
    assert not report["missing_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "model")
    assert peer(**tokenizer("a man plays", return_tensors="pt")).logits.shape[-1] == len(tokenizer) == 150


@pytest.mark.slow
def test_going_on_from_a_model_and_its_vocabulary(config, shallow_model, tmp_path, capsys):
    config.model = str(shallow_model)
    mlm.main(config)
    assert "its head is newly initialized" in capsys.readouterr().out
    first = tmp_path / "run" / "model"
    assert (first / "tokenizer.json").read_bytes() == (shallow_model / "tokenizer.json").read_bytes()
    config.model, config.output, config.learning_rate = str(first), str(tmp_path / "second"), 0.0
    mlm.main(config)
    assert "at random" not in capsys.readouterr().out
    models = [folder / "model.safetensors" for folder in (first, tmp_path / "second" / "model")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_other_text_is_another_recipe(config, tmp_path):
    mlm.main(config)
    config.data = str(write_text(tmp_path / "moved.txt"))  # the same text elsewhere
    mlm.main(config)
    config.data = str(write_text(tmp_path / "other.txt", seed=1))
    with pytest.raises(MismatchError, match="text was"):
        mlm.main(config)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": "no/such/file.txt"}, DataNotFoundError, "no such file"),
        ({"block_length": 33}, InputError, "takes 4 to 32 tokens"),
        pytest.param({"batch_size": 12}, InputError, "not a multiple of 8 devices", marks=pytest.mark.devices),
        ({"vocabulary.size": 50}, InputError, "cannot hold"),
    ],
)
def test_mistakes_are_named(config, changes, error, message):
    config.update(changes)
    with pytest.raises(error, match=message):
        mlm.main(config)
