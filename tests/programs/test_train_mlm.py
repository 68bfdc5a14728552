"""`python -m train.mlm`: the folder a run leaves, for jaxwhiten and transformers."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from configs.settings import MLM
from jaxwhiten import Encoder
from jaxwhiten.text import BulkTokenizer
from tests.sentences import generated
from tests.tiny import SENTENCES
from train import mlm
from train.masked import load_masked_lm


def test_the_folder_a_run_leaves(tmp_path, capsys, fresh_cache):
    out = tmp_path / "run"
    config = MLM()
    (tmp_path / "text.txt").write_text("\n".join(generated(600)))
    config.data, config.output = str(tmp_path / "text.txt"), str(out)
    config.held_out, config.block_length, config.batch_size, config.steps = 0.1, 16, 8, 6
    config.sizes.update({"num_layers": 1, "hidden_size": 32, "intermediate_size": 64, "max_positions": 32})
    config.vocabulary.update({"size": 150, "alphabet": 40})
    config.evaluate_blocks, config.progress, config.export_dtype = 16, False, "float16"
    mlm.main(config)
    assert {path.name for path in out.iterdir()} >= {"metrics.jsonl", "loss.png", "recipe.json"}
    results = json.loads((out / "results.json").read_text())
    assert (results["step"], results["tokens"]) == (6, 6 * 8 * 16)
    assert results["scores"]["held-out loss"] == pytest.approx(np.log(150), abs=0.1)
    card = (out / "model" / "README.md").read_text()
    assert "tokens seen | 768 |" in card
    assert str(tmp_path) not in card
    assert "model written from step 6" in capsys.readouterr().out
    vectors = Encoder.from_pretrained(out / "model", pooling="mean", max_length=16).encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), 32)
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    peer, report = transformers.AutoModelForMaskedLM.from_pretrained(out / "model", output_loading_info=True)
    assert not report["missing_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "model")
    assert tokenizer("[MASK] plays")["input_ids"] == BulkTokenizer(out / "model", 16)(["[MASK] plays"]).flat.tolist()
    ids = np.array(tokenizer(["a man plays"])["input_ids"])
    theirs = peer.float().eval()(input_ids=torch.tensor(ids)).logits.detach().numpy()
    model, _, has_head = load_masked_lm(out / "model")
    assert has_head
    ours = model(jnp.asarray(ids), jnp.ones_like(ids), jnp.arange(ids.shape[1])[None])
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert ours.shape[-1] == len(tokenizer) == 150
