"""One line of summary and advice for each finished run of `eval.sts` or `eval.retrieval`.

    python -m eval.verdict "Un-tuned encoder=runs/demo-search" "Tuned encoder=runs/demo"

Each word is LABEL=FOLDER. The lines are made from the rows of the runs: raw vectors, whitened vectors at half the size
or, if that is no gain, at full size, and PCA (γ = 0) at the fewest dimensions. The advice depends on the paired
intervals to the raw vectors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from eval.common import python
from jaxwhiten.commands import launch
from jaxwhiten.errors import InputError
from jaxwhiten.report import PAGE, Run, results


def verdict(label: str, run: Run) -> str:
    """The line of one run.

    Args:
      label: What the encoder or the data are called.
      run: A run with raw vectors, a full whitening (γ = 1) and, for the advice to reduce, PCA (γ = 0).

    Raises:
      InputError: The run has no raw row, no full whitening, or several poolings.
    """
    if len({row.pooling for row in run.rows}) != 1:
        raise InputError(f"{label}: the verdict is about one pooling, and the run has several or none.")
    raw = next((row for row in run.rows if row.whitening == "none"), None)
    full = [row for row in run.rows if row.has_knobs and row.gamma == 1]
    pca = min((row for row in run.rows if row.has_knobs and row.gamma == 0), key=lambda row: row.k, default=None)
    if raw is None or not full:
        raise InputError(f"{label}: the verdict needs rows of raw and of fully whitened vectors.")
    figure, versus, name = _figures(run)
    whole = max(full, key=lambda row: row.k)
    halved = max((row for row in full if row.k <= raw.k // 2), key=lambda row: row.k, default=whole)
    if versus(halved).low > 0:
        said = f"{figure(halved)} whitened to {_size(halved, raw)}"
        advice = "Whitening rescues these vectors: whiten them."
    else:
        said = f"{figure(whole)} whitened to {_size(whole, raw)}"
        said += f"; {figure(pca)} by PCA to {_size(pca, raw)}" if pca else ""
        advice = _advice(versus(whole), pca and versus(pca))
    return f"{label}, {name}: {figure(raw)} raw; {said}.\n  → {advice}"


def _figures(run: Run) -> tuple[Callable, Callable, str]:
    """The text of a row's score, its paired difference to the raw row, and the name of the score."""
    if run.header.program == "eval.retrieval":
        return lambda row: f"{row.mrr_at_10:.3f}", lambda row: _known(row.versus_raw), "MRR@10"
    tasks, aggregate, key = run.header.tasks, run.header.aggregate, run.header.scored[-1]
    return (
        lambda row: f"{row.average(aggregate):.1f}",
        lambda row: _known((row.versus_raw or {}).get(key)),
        f"Spearman × 100 on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}",
    )


def _known(difference: results.Estimate | None) -> results.Estimate:
    if difference is None:
        raise InputError("The verdict needs intervals: run with --config.bootstrap=1000.")
    return difference


def _size(row: results.Row, raw: results.Row) -> str:
    share = raw.k / row.k
    return f"{row.k} dimensions" + (f", 1/{share:.3g} of the bytes" if share != 1 else "")


def _advice(whitened: results.Estimate, pca: results.Estimate | None) -> str:
    kept = pca is not None and pca.high >= 0
    if whitened.high < 0:
        return "Reduce these vectors, do not whiten them fully." if kept else "Leave these vectors as they are."
    return "Whitening changes nothing that these data could show" + (": reduce by PCA." if kept else ".")


def next_steps(folders: list[Path]) -> str:
    """The command to type next, and the pages to open."""
    pages = " ".join(os.path.relpath(folder / PAGE) for folder in folders)
    return (
        "Next, your own encoder on the seven STS tasks (downloaded unless --config.data_dir names them):\n"
        f"  {python()} -m eval.sts --config.model=FOLDER_OR_HUB_ID\n"
        f"To look at, in a browser: {pages}"
    )


def main() -> None:
    pairs = [word.rpartition("=") for word in sys.argv[1:]]
    if not pairs or not all(label for label, _, _ in pairs):
        raise InputError('python -m eval.verdict "LABEL=FOLDER" ...')
    lines = [verdict(label, Run.load(folder)) for label, _, folder in pairs]
    print("\n".join(["", *lines, "", next_steps([Path(folder) for _, _, folder in pairs])]))


if __name__ == "__main__":
    launch.run_without_config(main)
