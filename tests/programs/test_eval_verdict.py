"""The lines that the demo ends with: written from the rows, and the advice from their intervals."""

import dataclasses
import sys

import pytest

from eval import report, verdict
from eval.report.results import Estimate
from jaxwhiten.errors import InputError
from tests.programs.report.test_report import row, run  # noqa: F401
from tests.programs.report.test_report_retrieval import row as found

BETTER, SAME, WORSE = Estimate(2.0, 1.0, 3.0), Estimate(0.1, -1.0, 1.0), Estimate(-2.0, -3.0, -1.0)


@pytest.fixture
def run_of(run):  # noqa: F811
    def run_of(whitened, reduced, half=60.0):
        rows = [row("mean", "none", 8, (52.0, 52.0))]
        for k, gamma, value, versus in ((8, 1.0, 70.0, whitened), (4, 1.0, half, whitened), (2, 0.0, 55.5, reduced)):
            difference = {"average": versus}
            rows.append(
                dataclasses.replace(row("mean", "target", k, (value, value), gamma=gamma), versus_raw=difference)
            )
        return report.Run(run.header, rows)

    return run_of


def test_an_encoder_that_whitening_rescues(run_of):
    said = verdict.verdict("Un-tuned encoder", run_of(BETTER, BETTER))
    assert said == (
        "Un-tuned encoder, Spearman × 100 on 2 tasks: 50.0 raw; 58.0 whitened to 4 dimensions, 1/2 of the bytes.\n"
        "  → Whitening rescues these vectors: whiten them."
    )


def test_an_encoder_that_only_shrinks(run_of):
    said = verdict.verdict("Tuned encoder", run_of(WORSE, SAME, half=45.0))
    assert "50.0 raw; 68.0 whitened to 8 dimensions; 53.5 by PCA to 2 dimensions, 1/4 of the bytes." in said
    assert said.endswith("→ Reduce these vectors, do not whiten them fully.")


@pytest.mark.parametrize(
    ("whitened", "reduced", "advice"),
    [(WORSE, WORSE, "Leave these vectors as they are."), (SAME, SAME, "reduce by PCA."), (SAME, WORSE, "could show.")],
)
def test_the_advice_follows_from_the_intervals(run_of, whitened, reduced, advice):
    assert verdict.verdict("x", run_of(whitened, reduced)).endswith(advice)


def test_a_search(run):  # noqa: F811
    raw = found(whitening="none", k=384, beta=0.0, gamma=0.0, mrr_at_10=0.25)
    whitened = found(k=192, mrr_at_10=0.5, versus_raw=BETTER)
    header = dataclasses.replace(run.header, program="eval.retrieval")
    said = verdict.verdict("Search", report.Run(header, [raw, whitened]))
    assert said.startswith("Search, MRR@10: 0.250 raw; 0.500 whitened to 192 dimensions, 1/2 of the bytes.\n")


@pytest.mark.parametrize(
    ("versus", "advice"),
    [
        (BETTER, "vectors: whiten them."),
        (SAME, "vectors to the level of TF-IDF: whiten them, or take TF-IDF."),
        (WORSE, "vectors, and TF-IDF is still ahead: take it, or a tuned encoder."),
    ],
)
def test_a_search_beside_words_alone(run, versus, advice):  # noqa: F811
    raw = found(whitening="none", k=384, beta=0.0, gamma=0.0, mrr_at_10=0.25)
    whitened = found(k=192, mrr_at_10=0.5, versus_raw=BETTER, versus_words=versus)
    words = found(model="words", pooling="tfidf", beta=None, gamma=None, mrr_at_10=0.45)
    header = dataclasses.replace(run.header, program="eval.retrieval")
    said = verdict.verdict("Search", report.Run(header, [words, raw, whitened]))
    assert "0.500 whitened to 192 dimensions, 1/2 of the bytes; 0.450 by words alone (TF-IDF).\n" in said
    assert said.endswith(advice)


def test_what_it_cannot_tell(run, run_of):  # noqa: F811
    with pytest.raises(InputError, match="several"):
        verdict.verdict("x", run)
    with pytest.raises(InputError, match="needs intervals"):
        verdict.verdict(
            "x", report.Run(run.header, [row("mean", "none", 8, (1.0, 1.0)), row("mean", "target", 4, (1.0, 1.0))])
        )
    with pytest.raises(InputError, match="rows of raw"):
        verdict.verdict("x", report.Run(run.header, [row("mean", "none", 8, (1.0, 1.0))]))


def test_the_command_to_type_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    said = verdict.next_steps([tmp_path / "runs" / "demo"])
    assert "  .venv/bin/python -m eval.sts" in said
    assert "runs/demo/results.md" in said
