"""Plants the faults of `mutants.toml` one by one in a copy of the tree, and says which ones the tests notice.

    python -m tests.mutants [--only WORD ...] [--workers 2] [--fast] [--check]

mutmut and cosmic-ray swap every operator they find; here chosen faults are planted in named places, each against the
test files that have to notice it, which neither takes as input.

PyTorch is hidden, so that what is killed here is killed by `make test`. Fails if an anchor no longer occurs exactly
once, if the tests fail without a fault, or if a fault survives without a stated reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".cache", "runs", "site", "dist", "build", ".*_cache", "__pycache__", "*.pyc"
)
TIMEOUT = 300  # seconds for the tests of one fault
PASSED, FAILED = 0, 1  # pytest's exit statuses
_PROCESSES = multiprocessing.get_context("forkserver")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
      file: Where, from the root of the repository.
      old: A part of one line that occurs once in the file.
      new: What stands there instead.
      breaks: What is then wrong.
      tests: The test files that have to notice.
      k: Which of their tests, as pytest's `-k` has it; all if empty.
      survives: Why no test notices, if that is known and accepted.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    k: str = ""
    survives: str = ""

    @property
    def selection(self) -> list[str]:
        """The arguments of pytest that select the tests."""
        return [*self.tests, *(["-k", self.k] if self.k else [])]

    def problem(self) -> str | None:
        """What makes this entry of the list useless, or None."""
        if missing := [name for name in (self.file, *self.tests) if not (ROOT / name).is_file()]:
            return f"there is no {missing[0]}"
        found = (ROOT / self.file).read_text(encoding="utf-8").count(self.old)
        if found != 1:
            return f"{self.old!r} occurs {found} times, expected once"
        return "the fault is no change" if self.old == self.new else None


def read_mutants(path: Path) -> list[Mutant]:
    """The committed list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def run_tests(tree: Path, selection: Sequence[str], timeout: float | None) -> tuple[int | None, str]:
    """pytest's exit status in a tree, None if it ran out of time, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        process = _PROCESSES.Process(target=_pytest, args=(tree, list(selection), Path(folder)))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            return None, f"more than {timeout} seconds"
        return process.exitcode, (Path(folder) / "output").read_text(encoding="utf-8", errors="replace")


def _pytest(tree: Path, selection: list[str], folder: Path) -> None:
    """Runs pytest in this process, forked from one that has imported the large libraries, and ends it."""
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    os.chdir(tree)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["JAXWHITEN_CACHE_DIR"] = str(folder / "cache")  # what a fault wrote must not serve the next one
    sys.dont_write_bytecode = True  # a fault planted within a second would run the bytecode of the last one
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

    import pytest

    status = pytest.main(["-x", "-q", "-p", "tests.without_torch", "-p", "no:cacheprovider", *selection])
    sys.stdout.flush()
    os._exit(int(status))


def verdict(mutant: Mutant, tree: Path) -> str:
    """Plants one fault in a tree, runs its tests, and takes it out again."""
    file = tree / mutant.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        status, output = run_tests(tree, mutant.selection, TIMEOUT)
    finally:
        file.write_text(whole, encoding="utf-8")
    if status in (FAILED, None):
        return "killed"
    return "survived" if status == PASSED else f"not run (pytest ended with {status}):\n{output[-2000:]}"


def main() -> int:
    """Runs the list and prints one line per fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="words; only faults with one in file or description")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="only check that every anchor occurs once")
    parser.add_argument("--fast", action="store_true", help="take it that the tests pass without a fault")
    options = parser.parse_args()

    mutants = read_mutants(Path(__file__).with_name("mutants.toml"))
    mutants = [mutant for mutant in mutants if any(word in f"{mutant.file}: {mutant.breaks}" for word in options.only)]
    problems = [f"{mutant.file}: {mutant.problem()}" for mutant in mutants if mutant.problem()]
    if problems or options.check:
        print("\n".join([*problems, f"{len(mutants)} faults, {len(problems)} of them do not fit the tree"]))
        return 2 if problems else 0

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # JAX, imported before tests/conftest.py, reads where compiled programs are kept.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # Imported once and forked: they take longer than most of the tests. None may import the library, PyTorch or a
    # plugin of pytest.
    _PROCESSES.set_forkserver_preload(["tests.without_torch", "jax.numpy", "flax.nnx", "optax", "scipy.stats"])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(options.workers):
            trees.put(Path(shutil.copytree(ROOT, Path(folder) / str(number), ignore=LEFT_OUT)))

        def in_a_tree(work: Callable[[Path], Any]) -> tuple[Any, float]:
            tree, started = trees.get(), time.monotonic()
            try:
                return work(tree), time.monotonic() - started
            finally:
                trees.put(tree)

        selections = [] if options.fast else sorted({tuple(mutant.selection) for mutant in mutants})
        whole = pool.map(lambda chosen: in_a_tree(lambda tree: run_tests(tree, chosen, timeout=None)), selections)
        for selection, ((status, output), _) in zip(selections, whole, strict=True):
            if status != PASSED:
                print(f"The tests fail without a fault: {' '.join(selection)}\n{output[-3000:]}")
                pool.shutdown(cancel_futures=True)
                return 2

        verdicts = []
        planted = pool.map(lambda mutant: in_a_tree(lambda tree: verdict(mutant, tree)), mutants)
        for mutant, (found, seconds) in zip(mutants, planted, strict=True):
            verdicts.append(found)
            reason = f" (accepted: {mutant.survives})" if found == "survived" and mutant.survives else ""
            print(f"{found:8} {seconds:5.0f} s  {mutant.file}: {mutant.breaks}{reason}", flush=True)

    unexplained = sum(v != "killed" and not m.survives for m, v in zip(mutants, verdicts, strict=True))
    killed = verdicts.count("killed")
    print(f"{len(mutants)} planted, {killed} killed, {len(mutants) - killed} not, {unexplained} of these unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
