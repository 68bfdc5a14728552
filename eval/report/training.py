"""The view of a run of a training program: `report.html` in the folder of its results."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from eval.report import page
from eval.report.table import Table, number
from jaxwhiten._version import __version__
from jaxwhiten.io import PathLike

_PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tokenizers")


def write_training(
    folder: PathLike,
    title: str,
    *,
    scores: Mapping[str, Mapping[str, float]],
    recipe: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Path:
    """Writes `report.html` into the folder of a finished run: result, course of the training, recipe, versions.

    `scores` holds for each column the scores by name: `"before"`, if there are any, and the result last. `recipe`
    holds the settings that determine the result. `facts` may hold the `"step"` of the checkpoint that was kept.
    """
    from jaxwhiten.training.log import PLOT_FILE, read_metrics

    folder = Path(folder)
    rows, curve = read_metrics(folder), folder / PLOT_FILE
    packages = {name: metadata.version(name) for name in _PACKAGES}
    versions = {"jaxwhiten": __version__, "python": platform.python_version(), **packages}
    drawn = page.picture(curve, "Loss and scores by step") if curve.is_file() else ""
    names = dict.fromkeys(name for found in scores.values() for name in found)
    before, after = scores.get("before", {}), list(scores.values())[-1]
    changes = {name: after[name] - before[name] for name in after if name in before}
    columns = dict(scores) | ({"change": changes} if changes else {})
    cells = [[name, *(number(of.get(name), 3, head == "change") for head, of in columns.items())] for name in names]
    evaluations = [row for row in rows if "loss" not in row]
    measures = list(dict.fromkeys(name for row in evaluations for name in row if name != "step"))
    course = [[str(row["step"]), *(number(row.get(name), 3) for name in measures)] for row in evaluations]
    course_table = Table(["step", *measures], course, 0, "Scores of every evaluation.") if measures else None
    sections = [
        page.section("Result", page.tables(Table(["score", *columns], cells) if cells else None)),
        page.section("Course", drawn, page.folded("Evaluations", page.tables(course_table))),
        page.section("Run", page.facts(facts)),
        page.section("Recipe", page.facts(recipe)),
        page.section("Versions", page.facts(versions)),
    ]
    first = {name: f"{number(value, 3)} → " for name, value in before.items()}
    lead = [f"{name} {first.get(name, '')}{number(value, 3)}" for name, value in after.items()]
    if "step" in facts:
        of = f" of {recipe['steps']}" if "steps" in recipe else ""
        lead.append(f"checkpoint of step {facts['step']}{of}")
    lead.append(datetime.date.today().isoformat())
    return page.write_page(folder / page.PAGE, title, [" · ".join(lead)], sections)
