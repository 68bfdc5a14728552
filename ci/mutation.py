"""Mutation testing: `make mutation` plants faults in a few modules and counts those that a test notices.

cosmic-ray plants them in a copy of the working tree. A sample of each module's faults is tried, of different places,
without the operators on bits, which fail in any test. The scores go to `ci/mutation.json`, with the faults that no test
noticed: read each, and write the test that was missing, unless the fault changes nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = {
    "jaxwhiten/whitening/whitening.py": "whitening/test_whitening.py whitening/test_decomposition.py",
    "jaxwhiten/whitening/moments.py": "whitening/test_moments.py",
    "jaxwhiten/codes/gaussian.py": "codes/test_gaussian.py",
    "jaxwhiten/codes/spectrum.py": "codes/test_spectrum.py",
}
BITS = ("BitAnd", "BitOr", "BitXor", "LShift", "RShift", "Invert")


def main(count: int) -> None:
    """Tries `count` faults of each module and writes the scores."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        files = subprocess.run(
            ["git", "ls-files", "jaxwhiten", "tests", "eval", "train", "pyproject.toml"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for file in files:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, tree / file)
        scores = {module: score(tree, module, tests.split(), count) for module, tests in TESTS.items()}
    (ROOT / "ci" / "mutation.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")


def score(tree: Path, module: str, tests: list[str], count: int) -> dict[str, object]:
    """The number of faults tried, those noticed, and the places of the others."""
    command = " ".join(["python -m pytest -x -q -p no:cacheprovider", *(f"tests/{test}" for test in tests)])
    (tree / "mutation.toml").write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = 300.0\nexcluded-modules = []\ntest-command = "{command}"\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    session = tree / "session.sqlite"
    session.unlink(missing_ok=True)

    def cosmic_ray(*words: str) -> None:
        path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
        words = (sys.executable, "-m", "cosmic_ray.cli", *words, "mutation.toml", str(session))
        subprocess.run(words, cwd=tree, check=True, env=os.environ | {"PYTHONPATH": path})

    cosmic_ray("init")
    with sqlite3.connect(session) as database:
        places = dict[tuple[int, int], list[str]]()
        specs = "SELECT job_id, operator_name, start_pos_row, start_pos_col FROM mutation_specs"
        for job, operator, row, column in database.execute(specs):
            if not any(name in operator for name in BITS):
                places.setdefault((row, column), []).append(job)
        chance = random.Random(0)
        kept = [chance.choice(places[place]) for place in chance.sample(sorted(places), min(count, len(places)))]
        for table in ("work_items", "mutation_specs"):
            database.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({','.join('?' * len(kept))})", kept)
    cosmic_ray("exec")
    with sqlite3.connect(session) as database:
        rows = database.execute(
            "SELECT operator_name, start_pos_row, test_outcome FROM mutation_specs NATURAL JOIN work_results"
        ).fetchall()
    missed = [f"line {row}: {operator.partition('/')[2]}" for operator, row, outcome in rows if outcome == "SURVIVED"]
    print(f"{module}: {len(rows) - len(missed)} of {len(rows)} faults noticed", *missed, sep="\n  ", flush=True)
    return {"faults": len(rows), "noticed": len(rows) - len(missed), "missed": missed}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
