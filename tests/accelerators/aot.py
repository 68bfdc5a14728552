"""Compiles every program for every target, in a process of its own, and prints what the compilers say as JSON.

python -m tests.accelerators.aot [--targets v4,v5e] [--programs WORDS] [--quick] [--faults]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default="v4,v5e,v5p,v6e,h100")
    parser.add_argument("--programs", default="", help="only those with this in their names")
    parser.add_argument("--quick", action="store_true", help="only those of the default tests")
    parser.add_argument("--faults", action="store_true", help="the planted faults as well")
    args = parser.parse_args()

    from tests.accelerators.laboratory import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tests.accelerators.laboratory import TARGETS, examine
    from tests.accelerators.programs import FAULTS, PROGRAMS

    chosen = [p for p in PROGRAMS if args.programs in p.name and not (args.quick and p.slow)]
    chosen += FAULTS.values() if args.faults else []
    reports = []
    for name in args.targets.split(","):
        for program in chosen:
            if program.is_for(TARGETS[name]):
                try:
                    report = dataclasses.asdict(examine(program, TARGETS[name]))
                except Exception as error:  # it does not compile: that is what is reported
                    report = {
                        "program": program.name,
                        "target": name,
                        "error": f"{type(error).__name__}: {error}"[:2000],
                    }
                reports.append(report)
                print(json.dumps(report), file=sys.stderr, flush=True)
    json.dump(reports, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
