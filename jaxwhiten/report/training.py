"""The view of a run of a training program: `report.html` in the folder of its results."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxwhiten._version import __version__
from jaxwhiten.io import PathLike
from jaxwhiten.report import page
from jaxwhiten.report.table import Table, number

_PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tokenizers")


def write_training(
    folder: PathLike,
    title: str,
    *,
    scores: Mapping[str, Mapping[str, float]],
    recipe: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Path:
    """Writes `report.html` into the folder of a finished run: scores, the course of the training, recipe, versions.

    `scores` has the scores by name for each column, such as `"before"`; `recipe` is everything that determines the
    result.
    """
    from jaxwhiten.training.log import PLOT_FILE, read_metrics

    folder = Path(folder)
    rows, curve = read_metrics(folder), folder / PLOT_FILE
    packages = {name: metadata.version(name) for name in _PACKAGES}
    versions = {"jaxwhiten": __version__, "python": platform.python_version(), **packages}
    drawn = page.picture(curve, "Loss and scores by step") if curve.is_file() else ""
    names = dict.fromkeys(name for found in scores.values() for name in found)
    cells = [[name, *(number(found.get(name), 3) for found in scores.values())] for name in names]
    evaluations = [row for row in rows if "loss" not in row]
    measures = list(dict.fromkeys(name for row in evaluations for name in row if name != "step"))
    course = [[str(row["step"]), *(number(row.get(name), 3) for name in measures)] for row in evaluations]
    course_table = Table(["step", *measures], course, 0, "Evaluations during the run.") if measures else None
    sections = [
        page.section("Scores", page.tables(Table(["score", *scores], cells) if cells else None)),
        page.section("Course", drawn, page.tables(course_table)),
        page.section("Run", page.facts(facts)),
        page.section("Recipe", page.facts(recipe)),
        page.section("Versions", page.facts(versions)),
    ]
    lead = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return page.write_page(folder / page.PAGE, title, [lead], sections)
