"""README's commands on a random Qwen3 folder with sentence-transformers' files: whitening, codes, index, verify."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jaxwhiten import Encoder
from jaxwhiten.commands import cli
from jaxwhiten.head import Normalize
from jaxwhiten.models import init_model, load_config
from tests.golden.cases import write_checkpoint

WORDS = [f"w{number}" for number in range(35)]


@pytest.fixture
def folder(tmp_path):
    """The last token's state, of unit length, with a prompt for queries; the end of a text has the id of padding."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint", "qwen3")
    config = load_config(checkpoint)
    ids = {token: number for number, token in enumerate([*WORDS[:12], "<end>", *WORDS[12:], "<unk>"])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", config.pad_token_id)]
    )
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<end>", "unk_token": "<unk>"}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({**said, "model_max_length": 24}))
    model = init_model(config, seed=0)
    encoder = Encoder(model, checkpoint, pooling="lasttoken", max_length=24, prompts={"query": "w3 w4 "})
    return encoder.then(Normalize()).save(tmp_path / "model")


@pytest.mark.slow
def test_the_commands_of_the_readme(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 15))) for _ in range(300)]
    (tmp_path / "sentences.txt").write_text("\n".join(texts) + "\n")

    def run(line):
        assert not cli.main(line.split()), line
        return capsys.readouterr().out

    run("fit sentences.txt --model model -k 8 -o small/ --moments m.safetensors")
    run("encode sentences.txt --model small/ -o vectors.npy")
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape == (300, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    whitened = Encoder.from_pretrained("small").encode(texts[:5])
    np.testing.assert_allclose(vectors[:5], whitened, atol=2e-5)
    run("fit sentences.txt --model model --bytes 4 -o coded/")
    for name in ("small", "coded"):
        run(f"index sentences.txt --model {name}/ -o {name}-idx/")
    nearest = texts[int(np.argmax(vectors @ Encoder.from_pretrained("small").encode_query("w9 w5 w1")))]
    assert not cli.main(["search", "small-idx/", "w9 w5 w1", "-k", "1"])
    assert nearest in capsys.readouterr().out
    assert not cli.main(["search", "coded-idx/", "w9 w5 w1"])
    run("verify small/")
    said = json.loads((tmp_path / "small" / "modules.json").read_text())
    assert [module["type"].rsplit(".")[-1] for module in said][:2] == ["Transformer", "Pooling"]
