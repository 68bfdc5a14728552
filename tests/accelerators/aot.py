"""Compiles every program for every target, in a process of its own, and prints what the compilers say as JSON.

    python -m tests.accelerators.aot [--targets v4,v5e] [--programs PATTERN] [--quick] [--faults] [--write]

`--write` keeps the reports in docs/runs/aot/reports.json, beside those of other programs and targets, and puts the
tables into docs/accelerators.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

REPORTS, PAGE = Path("docs/runs/aot/reports.json"), Path("docs/accelerators.md")
_PLACE = re.compile(r"(<!-- aot (?P<target>\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD = (
    "| program | GFLOP | GB | temporaries, GB | FLOP per byte | bound, ms | between devices | state |",
    "|---|---:|---:|---:|---:|---|---|---|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default="v4,v5e,v5p,v6e")
    parser.add_argument("--programs", default="", help="only those whose names this pattern is found in")
    parser.add_argument("--quick", action="store_true", help="only those of the default tests")
    parser.add_argument("--faults", action="store_true", help="the planted faults as well")
    parser.add_argument("--write", action="store_true", help="keep the reports, and put tables into the page")
    parser.add_argument("--fill", action="store_true", help="only put the tables of the reports kept into the page")
    args = parser.parse_args()
    if args.fill:
        fill(json.loads(REPORTS.read_text(encoding="utf-8")))
        return

    from tests.accelerators.laboratory import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tests.accelerators.laboratory import TARGETS, examine
    from tests.accelerators.programs import FAULTS, PROGRAMS

    chosen = [p for p in PROGRAMS if re.search(args.programs, p.name) and not (args.quick and p.slow)]
    chosen += FAULTS.values() if args.faults else []
    reports: list[dict[str, Any]] = []
    for name in args.targets.split(","):
        for program in chosen:
            if not program.is_for(TARGETS[name]):
                continue
            try:
                report = dataclasses.asdict(examine(program, TARGETS[name]))
            except Exception as error:  # it does not compile: that is what is reported
                report = {"program": program.name, "target": name, "error": f"{type(error).__name__}: {error}"[:2000]}
            reports.append(report)
            print(json.dumps(report), file=sys.stderr, flush=True)
            if args.write:
                keep(reports, [program.name for program in PROGRAMS])
    json.dump(reports, sys.stdout, indent=1)


def keep(reports: Iterable[Mapping[str, Any]], order: list[str]) -> None:
    """Adds reports to those kept, in the order of the programs, and fills the page."""
    kept = json.loads(REPORTS.read_text(encoding="utf-8")) if REPORTS.exists() else []
    found = {(r["target"], r["program"]): r for r in [*kept, *reports] if r["program"] in order}
    rows = sorted(found.values(), key=lambda r: (r["target"], order.index(r["program"])))
    REPORTS.parent.mkdir(parents=True, exist_ok=True)
    REPORTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    fill(rows)


def fill(rows: list[dict[str, Any]]) -> None:
    """Puts a table per target into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_PLACE.sub(lambda match: f"{match[1]}\n{table(rows, match['target'])}\n\n", text), encoding="utf-8")


def table(rows: Iterable[Mapping[str, Any]], target: str) -> str:
    """The reports of a target in Markdown."""
    lines = [_line(row, target) for row in rows if row["target"] == target]
    return "\n".join([*_HEAD, *lines]) if lines else "Not run here."


def _line(row: Mapping[str, Any], name: str) -> str:
    from tests.accelerators.laboratory import TARGETS

    if "error" in row:
        return f"| {row['program']} | | | | | | | does not compile: {row['error'].splitlines()[0][:80]} |"
    target, flops, size = TARGETS[name], row["gflop"], row["gigabytes"]
    shown = ["–", "–", f"{row['temporaries']:.2f}", "–", "–"]
    if flops is not None and size:
        compute, memory = flops / target.tflops, 1000 * size / target.bandwidth
        by = "compute" if compute > memory else "memory"
        shown = [f"{flops:,.1f}", f"{size:.2f}", shown[2], f"{flops / size:.0f}", f"{max(compute, memory):.2f}, {by}"]
    between = ", ".join(f"{kind} × {count}" for kind, count in row["collectives"].items()) or "nothing"
    state = "compiled, not run" if not row["faults"] else f"compiled, not run; {'; '.join(row['faults'])}"
    return f"| {row['program']} | {' | '.join(shown)} | {between} | {state} |"


if __name__ == "__main__":
    main()
