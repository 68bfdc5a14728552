"""`python -m eval.static` from text to its tables; model2vec stands in the tests of the folders."""

import numpy as np
import pytest

from configs import static as settings
from eval import static
from eval.aggregates import sts_scores
from eval.runs import Run
from jaxwhiten import Encoder, load_sts
from jaxwhiten.encoding import Vocabulary, distil
from tests.programs.test_eval_retrieval import generate
from tests.tiny import SENTENCES


def config_for(folder, tiny_model):
    config = settings.get_config()
    config.update({"models": str(tiny_model), "poolings": "mean", "ks": "8", "corpus": str(folder)})
    config.parts = config.parts.replace("model2vec,", "")
    config.update({"tasks": "sts_sample", "dev": "", "dataset": str(generate(folder / "pairs.tsv", 200))})
    config.update({"sentences": 40, "timed": 20, "queries": 20, "bootstrap": 50, "out": str(folder / "runs" / "tiny")})
    return config


@pytest.fixture(scope="module", autouse=True)
def few_are_enough():
    """The text of these tests has few different sentences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxwhiten.encoding.distillation.ENOUGH", 20)
        yield


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """A folder with a finished run, runs/tiny."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "text.txt").write_text("\n".join(f"{text} {i}" for i in range(20) for text in SENTENCES))
    static.main(config_for(folder, tiny_model))
    return folder


def test_the_rows(folder, tiny_model):
    run = Run.load(folder / "runs" / "tiny")
    methods = [*static.OURS, *(f"rows, {code}" for code in static.CODES), *static.STEPS]
    assert [row.method for row in run.rows] == ["teacher", *methods]
    assert run.header.complete
    rows = {row.method: row for row in run.rows}
    for row in run.rows:
        if row.base is not None:
            assert row.versus.value == pytest.approx(row.sts - rows[row.base].sts)
            assert row.versus.low <= row.versus.value <= row.versus.high
    text = list(static.sentences_of(str(folder), 0))
    assert [row.method for row in run.rows if row.base == "whitened"] == list(static.STEPS)
    assert all((row.mrr_at_10 is None) == (row.base == "whitened") for row in run.rows)
    whitened = distil(Vocabulary.read(Encoder.from_pretrained(tiny_model, pooling="mean"), text, sentences=40), 8)
    pairs = load_sts("sts_sample").splits["test"]
    similarity = (whitened.encode(pairs.sentence1) * whitened.encode(pairs.sentence2)).sum(axis=1)
    expected = sts_scores(similarity, pairs.score, pairs.subset)["wmean"]
    assert rows["whitened"].sts == pytest.approx(expected, abs=0.01)
    assert rows["rows, int8"].megabytes == pytest.approx(rows["rows"].megabytes / 4)


def test_the_teacher_in_sentence_transformers(tiny_model, tmp_path):
    pytest.importorskip("sentence_transformers")
    teacher = Encoder.from_pretrained(tiny_model, pooling="mean")
    setting = static.by_sentence_transformers(str(tiny_model), teacher, 0.0, tmp_path)
    np.testing.assert_allclose(setting.encode(SENTENCES), teacher.encode(SENTENCES), atol=1e-5)
    assert setting.method == "teacher, sentence-transformers"
