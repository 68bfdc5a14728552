"""Mutation testing: plants faults in six rooms of the library and counts those that a test notices.

`experiments/mutation.sh` installs what it needs and runs it.

First the tests of `make test` run once with coverage, which records the tests that execute each line. Then cosmic-ray
plants a sample of faults, each in a clone of HEAD, and the tests that execute its line run until one fails: those of
the room first. With `--others`, the coverage of the other tests of `make test-all`, those run where the first ones did
not notice the fault. The operators on bits are left out, since annotations such as `int | None` fail in any test. The
counts go to `ci/mutation.json`, with the faults that no test noticed: read each, and write the test that is missing,
unless the fault changes nothing. A sample of n faults gives the fraction to within about 1/√n.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec
from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("whitening", "codes", "head", "search", "encoding", "scoring")
BITS = ("BitAnd", "BitOr", "BitXor", "LShift", "RShift", "Invert")
MOST_TESTS = 400  # for one fault; those of its room come first
SECONDS = 300  # for the tests of one fault


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20, help="number of faults per room; default: 20")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="rooms, split by commas; default: all six")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".cache" / "mutation.coverage")
    parser.add_argument("--others", type=Path, help="coverage of the tests that only `make test-all` runs")
    parser.add_argument("--again", type=Path, help="a log: only its faults that no test of `make test` noticed")
    parser.add_argument("--log", type=Path, help="JSON lines: each fault with the test that noticed it")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not options.coverage.exists():
        run_with_coverage(options.coverage)
    suites = {"make test": Tests(options.coverage)}
    if options.others is not None:
        suites["make test-all"] = Tests(options.others)
    rooms = options.rooms.split(",")
    faults = [fault for room in rooms for fault in sample(room, options.faults)]
    if options.again is not None:
        lines = [json.loads(line) for line in options.again.read_text(encoding="utf-8").splitlines()]
        unnoticed = {line["fault"] for line in lines if line["suite"] != "make test"}
        faults = [fault for fault in faults if described(fault) in unnoticed]
    if options.log is not None:
        options.log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(options.processes):
            trees.put(clone(Path(folder) / str(number)))
        with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            noticed = list(pool.map(lambda fault: notice(fault, suites, trees, options.log), faults))
    results: dict[str, dict[str, object]] = {}
    for room in rooms:
        pairs = [(fault, by) for fault, by in zip(faults, noticed, strict=True) if room_of(fault) == room]
        missed = [described(fault) for fault, by in pairs if by is None]
        results[room] = {"date": str(datetime.date.today()), "faults": len(pairs), "noticed": len(pairs) - len(missed)}
        if options.others is not None:
            results[room]["by make test"] = sum(by == "make test" for _, by in pairs)
        results[room]["missed"] = missed
        print(f"{room}: {len(pairs) - len(missed)} of {len(pairs)} faults noticed", *missed, sep="\n  ", flush=True)
    if options.again is None:
        file = ROOT / "ci" / "mutation.json"  # rooms that did not run keep their counts
        results = json.loads(file.read_text(encoding="utf-8")) | results
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def run_with_coverage(file: Path) -> None:
    """Runs the tests of `make test` with the context of each line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["--cov=jaxwhiten", "--cov-context=test", "--cov-report=", "-q", "-p", "no:cacheprovider"]
    command = ["make", "test", f"PYTEST_ARGS=-n auto --dist loadfile {' '.join(arguments)}"]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"COVERAGE_FILE": str(file)})


class Tests:
    """The tests that execute a line."""

    def __init__(self, file: Path):
        self._data = CoverageData(basename=str(file))
        self._data.read()
        self._files = {name.partition("/jaxwhiten/")[2]: name for name in self._data.measured_files()}

    def of(self, module: str, first: int, last: int) -> list[str]:
        """The tests of the lines of a module, its own and its room's first; of the whole module if only imports do."""
        name = self._files.get(module.removeprefix("jaxwhiten/"))
        if name is None:
            return []
        contexts = self._data.contexts_by_lineno(name)
        lines = [contexts.get(line, []) for line in range(first, last + 1)]
        found = {context.rpartition("|")[0] for line in lines for context in line} - {""}
        if not found:
            found = {context.rpartition("|")[0] for line in contexts.values() for context in line} - {""}
        _, room, file = module.split("/")
        own = f"tests/{room}/test_{file.removesuffix('.py')}"
        return sorted(found, key=lambda test: (not test.startswith(own), not test.startswith(f"tests/{room}/"), test))


def sample(room: str, count: int) -> list[MutationSpec]:
    """Faults of different places of a room's modules, the same in every run."""
    modules = sorted(path.relative_to(ROOT) for path in (ROOT / "jaxwhiten" / room).glob("*.py"))
    places = collections.defaultdict(list)
    for item in _all_work_items(modules, {}):
        (fault,) = item.mutations
        if not any(name in fault.operator_name for name in BITS):
            places[fault.module_path, fault.start_pos].append(fault)
    chance = random.Random(0)
    chosen = chance.sample(sorted(places, key=str), min(count, len(places)))
    return [chance.choice(places[place]) for place in chosen]


def clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
    return folder


def notice(fault: MutationSpec, suites: dict[str, Tests], trees: queue.Queue[Path], log: Path | None) -> str | None:
    """The first suite in which a test fails with a fault; None if none does."""
    tree = trees.get()
    operator = get_operator(fault.operator_name)(**fault.operator_args)
    suite, test = None, None
    try:
        with use_mutation(tree / fault.module_path, operator, fault.occurrence):
            for name, tests in suites.items():
                names = tests.of(str(fault.module_path), fault.start_pos[0], fault.end_pos[0])[:MOST_TESTS]
                if names and (test := first_failure(tree, names)) is not None:
                    suite = name
                    break
    finally:
        trees.put(tree)
    print(f"{described(fault)}: {f'{suite}, {test}' if suite else 'not noticed'}", flush=True)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"fault": described(fault), "suite": suite, "test": test}) + "\n")
    return suite


def first_failure(tree: Path, names: list[str]) -> str | None:
    """The test that fails first in a tree; None if all pass."""
    arguments = tree / "arguments.txt"
    arguments.write_text("\n".join(names) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "@arguments.txt"]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "a test that did not end"
    if "ERROR: not found" in done.stderr:
        raise RuntimeError(f"the coverage is of other tests: remove its file\n{done.stderr[-2000:]}")
    if not done.returncode:
        return None
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[0] if failed else "the import"


def room_of(fault: MutationSpec) -> str:
    return Path(fault.module_path).parts[1]


def described(fault: MutationSpec) -> str:
    return f"{fault.module_path}, line {fault.start_pos[0]}: {fault.operator_name.partition('/')[2]}"


if __name__ == "__main__":
    main()
