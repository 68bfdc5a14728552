"""Compiles every program for every target, in a process of its own, and prints what the compilers say as JSON.

    python -m tests.accelerators.aot [--targets v4,v5e] [--programs PATTERN] [--quick] [--faults] [--write]

`--write` keeps the reports in docs/runs/aot/reports.jsonl, with those of other programs and targets, and fills
docs/evidence/accelerators.md. A place for a table there names a target, and a pattern that its programs' names match:

    <!-- aot v5e encode, base|search -->
    <!-- end -->
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

from eval.runs import Record, Run, header

REPORTS, PAGE = Path("docs/runs/aot/reports.jsonl"), Path("docs/evidence/accelerators.md")
# What libtpu asks of its surroundings, and the GPU's compiler where there is none; to be set before JAX is imported.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
PLACE = re.compile(r"(<!-- aot (?P<target>\w+) (?P<programs>[^>]+) -->\n)(?P<table>.*?)(?=<!-- end -->)", re.DOTALL)
HEAD = ("| program | temporaries, GB | bound, ms | between devices |", "|---|---:|---|---|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default="v4,v5e,v5p,v6e")
    parser.add_argument("--programs", default="", help="only those whose names this pattern is found in")
    parser.add_argument("--quick", action="store_true", help="only those of the default tests")
    parser.add_argument("--faults", action="store_true", help="the planted faults as well")
    parser.add_argument("--write", action="store_true", help="keep the reports, and put tables into the page")
    args = parser.parse_args()

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
    """Adds reports to those kept, in the order of the programs, and puts the tables into their places in the page."""
    kept = Run.load(REPORTS).rows if REPORTS.exists() else []
    found = {(r["target"], r["program"]): r for r in [*kept, *reports] if r["program"] in order}
    rows = sorted(found.values(), key=lambda r: (r["target"], order.index(r["program"])))
    Run(header("tests.accelerators.aot", {}, complete=True), [Record(row) for row in rows]).save(REPORTS)

    def new(match: re.Match[str]) -> str:
        return f"{match[1]}\n{table(rows, match['target'], match['programs'])}\n\n"

    PAGE.write_text(PLACE.sub(new, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def table(rows: Iterable[Mapping[str, Any]], name: str, programs: str) -> str:
    """The reports of a TPU in Markdown, of the programs whose names match a pattern.

    Bounds are the times that follow from the modeled FLOPs and bytes at the device's peaks.
    """
    from tests.accelerators.laboratory import TARGETS

    target = TARGETS[name]
    lines = [*HEAD]
    for row in rows:
        if row["target"] != name or not re.search(programs, row["program"]):
            continue
        if "error" in row:
            lines.append(f"| {row['program']} | does not compile: {row['error'].splitlines()[0][:80]} | | |")
            continue
        compute = row["gflop"] / target.tflops
        memory = 1000 * row["gigabytes"] / target.bandwidth
        bound = f"{max(compute, memory):.2f}, {'compute' if compute > memory else 'memory'}"
        passed = ", ".join(f"{kind} × {count}" for kind, count in row["collectives"].items()) or "nothing"
        title = "; ".join([row["program"], *row["faults"]])
        lines.append(f"| {title} | {row['temporaries']:.2f} | {bound} | {passed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
