"""What `save` will refuse is refused before the work that it would end, at every door."""

import numpy as np
import pytest

from jaxwhiten import Encoder, TrainingOptions, train
from jaxwhiten.commands import cli
from jaxwhiten.errors import InputError
from jaxwhiten.export import export_sentence_transformer, save_database
from jaxwhiten.views.stream import Run
from tests.sentences import generated

TEXTS = generated(60)
ROWS = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
PAIRS = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))


def command(words):
    def run(encoder, tiny_model):
        if cli.main([*words.split(), *f"--model {tiny_model} --pooling pooler --max-length 32 -o out/".split()]):
            raise InputError("pooler")

    return run


DOORS = {
    **{
        words: command(words)
        for words in (
            *("fit texts.txt", "fit texts.txt --bytes 4", "fit texts.txt --no-cache", "train pairs.tsv", "export"),
            "export --format sqlite-vec",
        )
    },
    "Encoder.save": lambda encoder, _: encoder.save("out"),
    "export_sentence_transformer": lambda encoder, _: export_sentence_transformer("out", encoder),
    "save_database": lambda encoder, _: save_database("out", encoder.whiten(ROWS, k=4), "sqlite-vec", 8),
    "training": lambda encoder, _: train(encoder, PAIRS, "mnr", TrainingOptions(steps=1, batch_size=4)),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_head_without_modules_is_refused_before_a_text_is_encoded(door, tiny_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "\n".join("\t".join(pair) for pair in PAIRS))
    encoder = Encoder.from_pretrained(tiny_model, pooling="pooler", max_length=32, tuned=True)

    def refuse(*_, **__):
        raise AssertionError("encoded before it was refused")

    monkeypatch.setattr(Run, "of_tokens", refuse)
    with pytest.raises(InputError, match="pooler"):
        DOORS[door](encoder, tiny_model)
    assert "pooler" in capsys.readouterr().err or not door.startswith(("fit", "export --", "train "))
    assert not (tmp_path / "out").exists()
