"""Mutation testing: `make mutation` plants faults in six rooms of the library and counts those that a test notices.

First the tests of `make test` run once with coverage, which records the tests that execute each line. Then cosmic-ray
plants a sample of faults, each in a clone of HEAD, and the tests that execute its line run until one fails: those of
the room first. The operators on bits are left out, since annotations such as `int | None` fail in any test. The counts
go to `ci/mutation.json`, with the faults that no test noticed: read each, and write the test that is missing, unless
the fault changes nothing. A sample of n faults gives the fraction to within about 1/√n.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
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
    parser.add_argument("--log", type=Path, help="JSON lines: each fault with the test that noticed it")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not options.coverage.exists():
        run_with_coverage(options.coverage)
    tests = Tests(options.coverage)
    faults = [fault for room in options.rooms.split(",") for fault in sample(room, options.faults)]
    with tempfile.TemporaryDirectory() as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(options.processes):
            trees.put(clone(Path(folder) / str(number)))
        with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            noticed = list(pool.map(lambda fault: notice(fault, tests, trees), faults))
    results: dict[str, dict[str, object]] = {}
    for room in options.rooms.split(","):
        pairs = [(fault, by) for fault, by in zip(faults, noticed, strict=True) if room_of(fault) == room]
        missed = [described(fault) for fault, by in pairs if by is None]
        results[room] = {"faults": len(pairs), "noticed": len(pairs) - len(missed), "missed": missed}
        print(f"{room}: {len(pairs) - len(missed)} of {len(pairs)} faults noticed", *missed, sep="\n  ", flush=True)
    (ROOT / "ci" / "mutation.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.log is not None:
        lines = [json.dumps({"fault": described(fault), "test": by}) for fault, by in zip(faults, noticed, strict=True)]
        options.log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run_with_coverage(file: Path) -> None:
    """Runs the tests of `make test` with the context of each line, in a copy of the tree."""
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
        """The tests of the lines of a module, those of its room first; of the whole module if only imports do."""
        name = self._files.get(module.removeprefix("jaxwhiten/"))
        if name is None:
            return []
        contexts = self._data.contexts_by_lineno(name)
        lines = [contexts.get(line, []) for line in range(first, last + 1)]
        found = {context.partition("|")[0] for line in lines for context in line} - {""}
        if not found:
            found = {context.partition("|")[0] for line in contexts.values() for context in line} - {""}
        own = f"tests/{module.split('/')[1]}/"
        return sorted(found, key=lambda test: (not test.startswith(own), test))


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


def notice(fault: MutationSpec, tests: Tests, trees: queue.Queue[Path]) -> str | None:
    """The first test that fails with a fault; None if none does."""
    names = tests.of(str(fault.module_path), fault.start_pos[0], fault.end_pos[0])[:MOST_TESTS]
    if not names:
        return None
    tree = trees.get()
    operator = get_operator(fault.operator_name)(**fault.operator_args)
    try:
        with use_mutation(tree / fault.module_path, operator, fault.occurrence):
            arguments = tree / "arguments.txt"
            arguments.write_text("\n".join(names) + "\n", encoding="utf-8")
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-n",
                "0",
                "-p",
                "no:cacheprovider",
                "-m",
                "not slow",
            ]
            environment = os.environ | {"PYTHONPATH": str(tree)}
            try:
                done = subprocess.run(
                    [*command, "@arguments.txt"],
                    cwd=tree,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                return "a test that did not end"
    finally:
        trees.put(tree)
    if "ERROR: not found" in done.stderr:
        raise RuntimeError(f"the coverage is of other tests: remove its file\n{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    by = failed[0] if failed else "the import"
    print(f"{described(fault)}: {by if done.returncode else 'not noticed'} ({len(names)} tests)", flush=True)
    return by if done.returncode else None


def room_of(fault: MutationSpec) -> str:
    return Path(fault.module_path).parts[1]


def described(fault: MutationSpec) -> str:
    return f"{fault.module_path}, line {fault.start_pos[0]}: {fault.operator_name.partition('/')[2]}"


if __name__ == "__main__":
    main()
