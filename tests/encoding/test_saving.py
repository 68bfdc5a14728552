"""What `save` will refuse is refused before the work that it would end, at every door; the rest is read as it was."""

import itertools
import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, TrainingOptions, train
from jaxwhiten.commands import cli
from jaxwhiten.errors import InputError
from jaxwhiten.export import export_sentence_transformer, save_database
from jaxwhiten.head import Head, Mean
from jaxwhiten.head.pooling import MODES, Concat, Pooler
from jaxwhiten.models import load_model
from jaxwhiten.views.stream import Run
from tests.encoding.test_folder_settings import as_sentence_transformer
from tests.sentences import generated
from tests.tiny import SENTENCES

TEXTS = generated(60)
PAIRS = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))


@pytest.fixture
def work(tmp_path, tiny_model):
    """A folder with texts and pairs, and the options of a head that has no module: BERT's pooler."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "\n".join("\t".join(pair) for pair in PAIRS))
    return tmp_path, ["--model", str(tiny_model), "--pooling", "pooler", "--max-length", "32"]


def command(*words):
    def run(encoder, work):
        folder, options = work
        before = [str(folder / word) if "." in word else word for word in words]
        if cli.main([*before, *options, "-o", str(folder / "out") + "/"]):
            raise InputError("pooler")

    return run


DOORS = {
    "fit": command("fit", "texts.txt"),
    "fit --bytes": command("fit", "texts.txt", "--bytes", "4"),
    "fit --no-cache": command("fit", "texts.txt", "--no-cache"),
    "train": command("train", "pairs.tsv"),
    "export": command("export"),
    "export to a database": command("export", "--format", "sqlite-vec"),
    "Encoder.save": lambda encoder, work: encoder.save(work[0] / "out"),
    "export_sentence_transformer": lambda encoder, work: export_sentence_transformer(work[0] / "out", encoder),
    "save_database": lambda encoder, work: save_database(work[0] / "out", encoder, "sqlite-vec", 8),
    "training": lambda encoder, work: train(encoder, PAIRS, "mnr", TrainingOptions(steps=1, batch_size=4)),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_head_without_modules_is_refused_before_a_text_is_encoded(door, tiny_model, work, monkeypatch, capsys):
    encoder = Encoder.from_pretrained(tiny_model, pooling="pooler", max_length=32)
    if "save_database" in door:
        encoder = encoder.whiten(TEXTS, k=4)

    def refuse(*_, **__):
        raise AssertionError("encoded before it was refused")

    monkeypatch.setattr(Run, "of_tokens", refuse)
    with pytest.raises(InputError, match="pooler"):
        DOORS[door](encoder, work)
    told = capsys.readouterr().err
    assert "pooler" in told or door in ("Encoder.save", "export_sentence_transformer", "save_database", "training")
    assert not (work[0] / "out").exists()


ORDERS = [*itertools.permutations(("cls", "mean", "max")), ("mean", "mean"), ("lasttoken", "weightedmean", "cls")]


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_poolings_are_concatenated_in_the_order_of_the_folder(tiny_model, tmp_path, order, include_prompt):
    folder = as_sentence_transformer(shutil.copytree(tiny_model, tmp_path / "model"))
    config = {"embedding_dimension": 32, "pooling_mode": list(order), "include_prompt": include_prompt}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    encoder = Encoder.from_pretrained(folder, max_length=32, prompts={"query": "Music: "}, default_prompt_name="query")
    expected = encoder.encode(SENTENCES[:3])
    saved = encoder.save(tmp_path / "saved")
    np.testing.assert_array_equal(Encoder.from_pretrained(saved).encode(SENTENCES[:3]), expected)
    written = json.loads((saved / "1_Pooling" / "config.json").read_text())
    in_order = list(order) == [mode for mode in MODES if mode in order]
    assert ("pooling_mode" in written) != in_order  # older versions read the other keys, in their own order
    if order[0] == "mean":
        peer = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
        theirs = peer.SentenceTransformer(str(saved), device="cpu").encode(SENTENCES[:3])
        np.testing.assert_allclose(expected, theirs, atol=1e-5)


def test_a_pooling_without_a_mode_is_refused_among_others(tiny_model, tmp_path):
    head = Head.of((Concat((Pooler(), Mean())),))
    encoder = Encoder(load_model(tiny_model)[0], tiny_model, head=head, max_length=32)
    with pytest.raises(InputError, match="cannot do this"):
        encoder.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
