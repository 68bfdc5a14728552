"""One line of summary and advice for each finished run of `eval.sts` or `eval.retrieval`.

    python -m eval.verdict "Un-tuned encoder=runs/demo-search" "Tuned encoder=runs/demo"

Each word is LABEL=FOLDER. The lines are made from the rows of the runs: raw vectors, whitened vectors at half the size
or, if that is no gain, at full size, and PCA (γ = 0) at the fewest dimensions, and TF-IDF where the run has it. The
advice depends on the paired intervals to the raw vectors and to TF-IDF.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from configs import launch
from eval.common import python
from eval.report import Run, results
from eval.report.views import MARKDOWN
from eval.words import TFIDF
from jaxwhiten.errors import InputError


def verdict(label: str, run: Run) -> str:
    """The line of one run.

    Args:
      label: What the encoder or the data are called.
      run: A run with raw vectors, a full whitening (γ = 1) and, for the advice to reduce, PCA (γ = 0).

    Raises:
      InputError: The run has no raw row, no full whitening, or several poolings.
    """
    words = next((row for row in run.rows if row.pooling == TFIDF), None)
    rows = [row for row in run.rows if row is not words]
    if len({row.pooling for row in rows}) != 1:
        raise InputError(f"{label}: the verdict is about one pooling, and the run has several or none.")
    raw = next((row for row in rows if row.whitening == "none"), None)
    full = [row for row in rows if row.has_knobs and row.gamma == 1]
    pca = min((row for row in rows if row.has_knobs and row.gamma == 0), key=lambda row: row.k, default=None)
    if raw is None or not full:
        raise InputError(f"{label}: the verdict needs rows of raw and of fully whitened vectors.")
    figure, versus, name = _figures(run)
    whole = max(full, key=lambda row: row.k)
    halved = max((row for row in full if row.k <= raw.k // 2), key=lambda row: row.k, default=whole)
    if versus(halved).low > 0:
        said = f"{figure(halved)} whitened to {_size(halved, raw)}"
        said += f"; {figure(words)} by words alone (TF-IDF)" if words else ""
        advice = "Whitening rescues these vectors" + _beside_words(words and versus(halved, "versus_words"))
    else:
        said = f"{figure(whole)} whitened to {_size(whole, raw)}"
        said += f"; {figure(pca)} by PCA to {_size(pca, raw)}" if pca else ""
        advice = _advice(versus(whole), pca and versus(pca))
    return f"{label}, {name}: {figure(raw)} raw; {said}.\n  → {advice}"


def _figures(run: Run) -> tuple[Callable, Callable, str]:
    """The text of a row's score, its paired difference to the raw row or TF-IDF, and the name of the score."""
    if run.header.program == "eval.retrieval":
        return (
            lambda row: f"{row.mrr_at_10:.3f}",
            lambda row, name="versus_raw": _known(getattr(row, name)),
            "MRR@10",
        )
    tasks, aggregate, key = run.header.tasks, run.header.aggregate, run.header.scored[-1]
    return (
        lambda row: f"{row.average(aggregate):.1f}",
        lambda row, name="versus_raw": _known((getattr(row, name) or {}).get(key)),
        f"Spearman × 100 on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}",
    )


def _known(difference: results.Estimate | None) -> results.Estimate:
    if difference is None:
        raise InputError("The verdict needs intervals: run with --config.bootstrap=1000.")
    return difference


def _size(row: results.Row, raw: results.Row) -> str:
    share = raw.k / row.k
    return f"{row.k} dimensions" + (f", 1/{share:.3g} of the bytes" if share != 1 else "")


def _beside_words(difference: results.Estimate | None) -> str:
    if difference is not None and difference.high < 0:
        return ", and TF-IDF is still ahead: take it, or a tuned encoder."
    level = difference is not None and difference.low <= 0
    return " to the level of TF-IDF: whiten them, or take TF-IDF." if level else ": whiten them."


def _advice(whitened: results.Estimate, pca: results.Estimate | None) -> str:
    kept = pca is not None and pca.high >= 0
    if whitened.high < 0:
        return "Reduce these vectors, do not whiten them fully." if kept else "Leave these vectors as they are."
    return "Whitening changes nothing that these data could show" + (": reduce by PCA." if kept else ".")


def next_steps(folders: list[Path]) -> str:
    """The command to type next, and the tables to read."""
    tables = " ".join(os.path.relpath(folder / MARKDOWN) for folder in folders)
    return (
        "Next, your own encoder on the seven STS tasks (downloaded unless --config.data_dir names them):\n"
        f"  {python()} -m eval.sts --config.model=FOLDER_OR_HUB_ID\n"
        f"All tables and plots: {tables}"
    )


def main() -> None:
    pairs = [word.rpartition("=") for word in sys.argv[1:]]
    if not pairs or not all(label for label, _, _ in pairs):
        raise InputError('python -m eval.verdict "LABEL=FOLDER" ...')
    lines = [verdict(label, Run.load(folder)) for label, _, folder in pairs]
    print("\n".join(["", *lines, "", next_steps([Path(folder) for _, _, folder in pairs])]))


if __name__ == "__main__":
    launch.run_without_config(main)
