"""The log of a run: a progress bar, metrics as JSON lines, TensorBoard events, and the loss curve as a PNG."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten._lazy import hidden
from jaxwhiten.errors import FormatError, optional
from jaxwhiten.runtime.distributed import is_writer
from jaxwhiten.terminal import say
from jaxwhiten.terminal.bars import Progress
from jaxwhiten.types import Fields

METRICS_FILE = "metrics.jsonl"
PLOT_FILE = "loss.png"
_PLOTTING = ("train", "Plotting a training run")


class Log:
    """The log of one run; a resumed run appends to the same files. Only the first process writes.

    The run resumes after `start` steps of `total`; lines of later steps, written after the restored checkpoint, are
    dropped. A step processes `per_step` units, such as `"sentences"`. `progress=None` shows a bar on a terminal.
    """

    def __init__(self, folder: Path, total: int, *, start: int, per_step: int, unit: str, progress: bool | None):
        self._per_step = per_step
        self._unit = unit
        self._bar = Progress(is_writer() and progress, total=total, initial=start, unit="step", desc="train")
        self._file: Any = None
        self._events: Any = None
        if is_writer():
            with hidden("torch"):  # tensorboardX would import it if it is installed, and double the start-up time
                summary_writer = optional("tensorboardX", "train", "Logging to TensorBoard").SummaryWriter
            optional("matplotlib", *_PLOTTING)  # an error now, not at the end of the run
            self._path = folder / METRICS_FILE
            earlier = [row for row in read_metrics(folder) if (row["step"] or 0) <= start]
            io.write_text(self._path, "".join(json.dumps(row) + "\n" for row in earlier))
            self._file = self._path.open("a", encoding="utf-8")
            self._events = summary_writer(str(folder / "tensorboard"), purge_step=start + 1)
        self._clock = time.perf_counter()
        self._last = start
        self._compiles = False

    def compiles(self) -> None:
        """Says that the next step is compiled first."""
        self._compiles = True
        self._bar.set_description_str("train (the first step compiles)")

    def steps(self, rows: Sequence[tuple[int, Fields]]) -> None:
        """Logs finished steps, at least one, given as (number, metrics)."""
        now = time.perf_counter()
        last, latest = rows[-1]
        rate = (last - self._last) * self._per_step / max(now - self._clock, 1e-9)
        for step, metrics in rows:
            values = {name: float(value) for name, value in metrics.items()} | {f"{self._unit}_per_second": rate}
            self._write({"step": step, **values})
        self._bar.set_postfix_str(f"loss {float(latest['loss']):.4f}, {rate:.0f} {self._unit}/s", refresh=False)
        if self._compiles:  # what is left is estimated without the time of the compilation
            self._compiles = False
            self._bar.restart("train", last)
        else:
            self._bar.update(last - self._last)
        self._clock = now
        self._last = last

    def scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs an evaluation; its time does not count towards the rate."""
        self._write({"step": step, **scores})
        self.note(f"step {step}: " + ", ".join(f"{name} {value:.2f}" for name, value in scores.items()))
        self._clock = time.perf_counter()

    def note(self, text: str) -> None:
        """Prints a message above the progress bar."""
        if self._file is not None:
            say(text)

    def _write(self, row: Mapping[str, int | float]) -> None:
        if self._file is None:
            return
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        with io.writing(self._path):
            self._file.write(json.dumps(finite) + "\n")
            self._file.flush()
        for name, value in row.items():
            if name != "step":
                self._events.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._bar.close()
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a full disk, which was reported
                self._file.close()
            self._close_events()

    def _close_events(self) -> None:
        """Ends TensorBoard's writer, which on a full disk would try again, and print a traceback, as Python ends."""
        writer = self._events.file_writer.event_writer
        for _ in range(2):
            try:
                return self._events.close()
            except OSError:
                writer.flush = lambda: None
        writer.close = lambda: None


def read_metrics(folder: io.PathLike) -> list[dict[str, int | float | None]]:
    """The rows of a run's metrics file; empty if there is no file. A line that a kill truncated is skipped."""
    path = Path(folder) / METRICS_FILE
    rows = list[dict[str, int | float | None]]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with contextlib.suppress(FormatError):
            rows.append(io.parse_json(line, dict[str, int | float | None], path))
    return rows


def plot_run(folder: io.PathLike) -> Path | None:
    """Plots the scores of a run above its loss with a running mean, as a PNG in its folder; None for single points."""
    rows = read_metrics(folder)
    names = dict.fromkeys(name for row in rows if "loss" not in row for name in row if name != "step")
    panels: dict[str, dict[str, np.ndarray]] = {}
    for name in ("loss", *names):
        points = np.array([(row["step"], row[name]) for row in rows if row.get(name) is not None])
        if len(points) > 1:
            panels.setdefault("loss" if name.endswith("loss") else "score", {})[name] = points
    if not panels:
        return None
    new_figure = optional("matplotlib.figure", *_PLOTTING, "matplotlib").Figure
    figure = new_figure(figsize=(8, 1.2 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    colors = map("C{}".format, itertools.count())
    for axis, kind in zip(axes, sorted(panels, reverse=True), strict=True):
        for (name, points), color in zip(panels[kind].items(), colors, strict=False):
            style: Fields = {"lw": 0.8, "alpha": 0.4} if name == "loss" else {"marker": "o", "ms": 4}
            axis.plot(*points.T, color=color, label=name, **style)
            if name == "loss" and (window := len(points) // 20) > 2:
                smooth = np.convolve(points[:, 1], np.full(window, 1 / window), mode="valid")
                axis.plot(points[window - 1 :, 0], smooth, color=color, lw=1.6, label=f"mean of {window} steps")
        axis.set_ylabel(kind)
        axis.grid(color="#e3e3e3", lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("step")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    path = Path(folder) / PLOT_FILE
    with io.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return path
