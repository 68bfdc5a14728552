"""`python -m train.cross`: the folder it leaves, and its negatives."""

import json

import numpy as np
import pytest

from configs.settings import Cross
from jaxwhiten import CrossEncoder
from tests.programs.runs import write_table
from tests.tiny import SENTENCES
from train import cross

PAIRS = [(a, b) for a in SENTENCES[:3] for b in SENTENCES[5:8]]


@pytest.fixture
def config(shallow_model, tmp_path, fresh_cache):
    config = Cross()
    config.model, config.output = str(shallow_model), str(tmp_path / "run")
    config.data.file, config.data.columns = str(write_table(tmp_path / "rows.tsv")), ("one", "two")
    config.max_length, config.batch_size, config.buckets, config.steps = 24, 8, 1, 3
    config.save_every, config.progress = 0, False
    return config


def test_the_folder_a_run_leaves(config, tmp_path, capsys):
    config.data.label, config.data.classes = "label", ("no", "maybe", "yes")
    cross.main(config)
    out = tmp_path / "run"
    assert json.loads((out / "results.json").read_text())["rows"] == 96
    assert "model written from step 3" in capsys.readouterr().out
    model = CrossEncoder.from_pretrained(out / "model")
    assert (model.label_names, model.activation) == (("no", "maybe", "yes"), "Identity")
    library = pytest.importorskip("sentence_transformers")
    peer = library.CrossEncoder(str(out / "model"), device="cpu")
    np.testing.assert_allclose(peer.predict(PAIRS), model.predict(PAIRS), atol=1e-5)


@pytest.mark.filterwarnings("ignore::jaxwhiten.encoding.PoolingWarning")
def test_positives_get_negatives_and_texts_of_the_test_are_left_out(config, tmp_path):
    first = (tmp_path / "rows.tsv").read_text().splitlines()[1].split("\t")[0]
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "test.tsv").write_text(f"{head}0\tq\td\t{first.upper()}!\tsomething else\t1\n")
    config.labels, config.data.exclude = "positives", str(tmp_path / "test.tsv")
    config.negatives, config.miner = 2, config.model
    examples = cross.load_examples(config, {})
    assert first not in examples.columns["first"]
    assert examples.label.tolist() == [1.0] * 95 + [0.0] * 190
