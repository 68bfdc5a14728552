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
    """A value that is there twice: its place, both values, by how many points they differ, and how many are allowed."""

    place: str
    before: Any
    now: Any
    points: float
    allowed: float = 0.0  # if it is more than for all figures


def claims() -> dict[str, runs.Run]:
    """The runs that can be replayed, those of programs with a config, by name; the shortest first."""
    kept = {name: runs.Run.load(runs.KEPT / f"{name}.jsonl") for name in runs.names()}
    there = {name: run for name, run in kept.items() if "out" in (run.header.get("arguments") or {})}
    return dict(sorted(there.items(), key=lambda item: item[1].header.get("seconds") or 0.0))


def replay(name: str, run: runs.Run, words: list[str], out: Path) -> runs.Run:
    """Runs the program of a run again, with further words; the new run, whose results are in `out`."""
    settings = dict(run.header.arguments) | {"out": str(out)}
    command = [sys.executable, "-m", run.header.program]
    for key, value in settings.items():
        command.append(f"--config.{key}={tuple(value) if isinstance(value, list) else value}")
    command += words
    say(f"{name}: " + " ".join(["python", *command[1:]]))
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise JaxwhitenError(f"{name}: the program ended with exit code {done.returncode}.")
    return runs.Run.load(out)


def differences(before: runs.Run, now: runs.Run) -> Iterator[Difference]:
    """Every figure of a run, compared with the same of another."""
    if len(before.rows) != len(now.rows):
        raise FormatError(f"Expected {len(before.rows)} rows, got {len(now.rows)}.")
    for number, rows in enumerate(zip(before.rows, now.rows, strict=True)):
        yield from _compared(*rows, f"row {number}", "")


def _compared(before: Any, now: Any, place: str, key: str) -> Iterator[Difference]:
    if _OF_MACHINE.search(key):
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        ends: list[Any] = [before.get(end) for end in _ENDS]
        if None in ends:
            width = 0.0
        else:
            width = float(ends[1]) - float(ends[0])
        for inner in {**before, **now}:
            for found in _compared(before.get(inner), now.get(inner), f"{place}.{inner}", inner):
                yield found._replace(allowed=width / 10) if inner in _ENDS else found
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from _compared(*pair, f"{place}[{number}]", key)
    elif key.endswith("bytes") and isinstance(before, int) and isinstance(now, int):
        yield Difference(place, before, now, 0.0 if abs(now - before) <= before / 100 else math.inf)
    elif isinstance(before, float) and isinstance(now, int | float):
        yield Difference(place, before, now, abs(now - before) * (100.0 if _FRACTION.search(key) else 1.0))
    else:
        yield Difference(place, before, now, 0.0 if before == now else math.inf)


def listed() -> str:
    """A line for each claim."""
    found = claims()
    shown = cited()
    lines = [f"{'run':<36}{'seconds':>8}  {'program':<15} pages"]
    for name, run in found.items():
        seconds = run.header.get("seconds")
        if seconds is None:
            took = ""
        else:
            took = f"{seconds:,.0f}"
        lines.append(f"{name:<36}{took:>8}  {run.header.program:<15} {', '.join(shown[name])}")
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
    there = claims()
    if args.run not in there:
        if args.run in runs.names():
            command = runs.Run.load(runs.KEPT / f"{args.run}.jsonl").header.get("command")
            raise InputError(f"{args.run}: only runs of programs with a config are replayed: use `{command}`.")
        raise unknown_name("run", args.run, there)
    before = there[args.run]
    now = replay(args.run, before, words, MADE / args.run)
    found = list(differences(before, now))
    off = [each for each in found if each.points > max(args.points, each.allowed)]
    for each in off[:20]:
        if math.isfinite(each.points):
            far = f", {each.points:.2f} points"
        else:
            far = ""
        print(f"{each.place}: recorded {each.before}, now {each.now}{far}")
    if off:
        versions = [(name, old, now.header.versions.get(name)) for name, old in before.header.versions.items()]
        changed = [f"{name} {old}, now {new}" for name, old, new in versions if old != new]
        if changed:
            because = f" Recorded with {'; '.join(changed)}."
        else:
            because = ""
        raise JaxwhitenError(
            f"{args.run}: does not hold: {len(off)} of {len(found)} values differ by more than {args.points:g} points."
            + because
        )
    figures = [each for each in found if isinstance(each.before, float) and not each.allowed]
    most = max(each.points for each in figures)
    print(
        f"{args.run}: holds: {len(found)} values, no figure more than {most:.3f} points off ({args.points:g} allowed)"
    )


if __name__ == "__main__":
    launch.run_without_config(main)
