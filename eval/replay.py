"""Runs the program behind a claim of docs/evidence again, with its recorded settings, and says whether the claim holds.

    python -m eval.replay --list
    python -m eval.replay demo-untuned
    python -m eval.replay tasks/tiny-mrpc --config.data_dir=DATA

A claim is a run of docs/runs, by its name there; --list shows each with the seconds that it took and its pages. Folders
and files of the machine are not recorded: further words, such as `--config.dataset=FOLDER`, name them. The results are
in runs/replay/NAME.

Every figure but times and memory is compared with the recorded one. The claim holds if none is further off than 0.2
points, where 100 points are a perfect score, or than --points. An end of an interval may be off by a tenth of its
width, because resamples are drawn, and a size in bytes by 1%.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from configs import launch
from eval import runs
from eval.common import say
from eval.stale import cited
from jaxwhiten.errors import FormatError, InputError, JaxwhitenError, unknown_name

MADE = runs.MADE / "replay"
POINTS = 0.2
# Of the machine, its load, and the names of folders.
_OF_MACHINE = re.compile(r"(seconds|_ms|_us|^ms|memory_gib|rss_gb|megabytes)$|per_second$|^(model|new|further)$")
_ENDS = ("low", "high")
_FRACTION = re.compile(r"_at_\d+$|^(distortion|bound|old_recall|embedded)$")


class Difference(NamedTuple):
    """A value that is there twice: its path, both values, by how many points they differ, and how many are allowed."""

    path: str
    recorded: object
    current: object
    points: float
    allowed: float = 0.0  # if it is more than for all figures


def claims() -> dict[str, runs.Run]:
    """The runs that can be replayed, those of programs with a config, by name; the shortest first."""
    stored = {name: runs.Run.load(runs.KEPT / f"{name}.jsonl") for name in runs.names()}
    replayable = {name: run for name, run in stored.items() if "out" in (run.header.get("arguments") or {})}
    return dict(sorted(replayable.items(), key=lambda item: item[1].header.get("seconds") or 0.0))


def replay(name: str, run: runs.Run, words: list[str], out: Path) -> runs.Run:
    """Runs the program of a run again, with further words; the new run, whose results are in `out`."""
    settings = dict(run.header.arguments) | {"out": str(out)}
    command = [sys.executable, "-m", run.header.program]
    for key, value in settings.items():
        if isinstance(value, list):
            value = tuple(value)
        command.append(f"--config.{key}={value}")
    command += words
    say(f"{name}: " + " ".join(["python", *command[1:]]))
    result = subprocess.run(command, check=False)
    if result.returncode:
        raise JaxwhitenError(f"{name}: the program ended with exit code {result.returncode}.")
    return runs.Run.load(out)


def differences(recorded: runs.Run, current: runs.Run) -> Iterator[Difference]:
    """Every figure of a run, compared with the same of another."""
    if len(recorded.rows) != len(current.rows):
        raise FormatError(f"Expected {len(recorded.rows)} rows, got {len(current.rows)}.")
    for number, rows in enumerate(zip(recorded.rows, current.rows, strict=True)):
        yield from _compared(*rows, f"row {number}", "")


def _compared(recorded: object, current: object, path: str, key: str) -> Iterator[Difference]:
    if _OF_MACHINE.search(key):
        return
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        bounds: list[Any] = [recorded.get(end) for end in _ENDS]
        width = 0.0
        if None not in bounds:
            width = float(bounds[1]) - float(bounds[0])
        for inner in {**recorded, **current}:
            for difference in _compared(recorded.get(inner), current.get(inner), f"{path}.{inner}", inner):
                if inner in _ENDS:
                    difference = difference._replace(allowed=width / 10)
                yield difference
    elif isinstance(recorded, list) and isinstance(current, list) and len(recorded) == len(current):
        for number, pair in enumerate(zip(recorded, current, strict=True)):
            yield from _compared(*pair, f"{path}[{number}]", key)
    elif key.endswith("bytes") and isinstance(recorded, int) and isinstance(current, int):
        yield Difference(path, recorded, current, 0.0 if abs(current - recorded) <= recorded / 100 else math.inf)
    elif isinstance(recorded, float) and isinstance(current, int | float):
        points = abs(current - recorded)
        if _FRACTION.search(key):
            points *= 100
        yield Difference(path, recorded, current, points)
    else:
        yield Difference(path, recorded, current, 0.0 if recorded == current else math.inf)


def listed() -> str:
    """A line for each claim."""
    replayable = claims()
    pages = cited()
    lines = [f"{'run':<36}{'seconds':>8}  {'program':<15} pages"]
    for name, run in replayable.items():
        seconds = run.header.get("seconds")
        duration = ""
        if seconds is not None:
            duration = f"{seconds:,.0f}"
        lines.append(f"{name:<36}{duration:>8}  {run.header.program:<15} {', '.join(pages[name])}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(usage="python -m eval.replay [--list] [RUN] [--points P] [--config.KEY=VALUE ...]")
    parser.add_argument("run", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--points", type=float, default=POINTS)
    args, words = parser.parse_known_args()
    if args.list or args.run is None:
        print(listed())
        return
    replayable = claims()
    if args.run not in replayable:
        if args.run in runs.names():
            command = runs.Run.load(runs.KEPT / f"{args.run}.jsonl").header.get("command")
            raise InputError(f"{args.run}: only runs of programs with a config are replayed: use `{command}`.")
        raise unknown_name("run", args.run, replayable)
    recorded = replayable[args.run]
    current = replay(args.run, recorded, words, MADE / args.run)
    compared = list(differences(recorded, current))
    deviating = [difference for difference in compared if difference.points > max(args.points, difference.allowed)]
    for difference in deviating[:20]:
        distance = ""
        if math.isfinite(difference.points):
            distance = f", {difference.points:.2f} points"
        print(f"{difference.path}: recorded {difference.recorded}, now {difference.current}{distance}")
    if deviating:
        versions = [(name, old, current.header.versions.get(name)) for name, old in recorded.header.versions.items()]
        changed = [f"{name} {old}, now {new}" for name, old, new in versions if old != new]
        cause = ""
        if changed:
            cause = f" Recorded with {'; '.join(changed)}."
        values = f"{len(deviating)} of {len(compared)} values"
        raise JaxwhitenError(f"{args.run}: does not hold: {values} differ by more than {args.points:g} points.{cause}")
    figures = [
        difference for difference in compared if isinstance(difference.recorded, float) and not difference.allowed
    ]
    largest = max(difference.points for difference in figures)
    print(
        f"{args.run}: holds: {len(compared)} values,"
        f" no figure more than {largest:.3f} points off ({args.points:g} allowed)"
    )


if __name__ == "__main__":
    launch.run_without_config(main)
