"""NLI first, then STS-B: scores and curves of `configs/nli_stsb_small.py` and of STS-B alone, gathered from their runs.

    python -m eval.stages runs/nli-stsb-0 runs/nli-stsb-1 runs/nli-stsb-2

Each folder has the runs `both` and `alone`, of one seed, and one has `nli`. Writes docs/runs/nli-stsb.jsonl.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

from configs import launch
from eval.plotting import COLORS, new_figure
from eval.report import Table, number
from eval.runs import KEPT, Record, Run, header

TEST = "STS-B test"
DEV = "STS-B dev"
NAMES = {"nli": "NLI", "both": "NLI, then STS-B", "alone": "STS-B alone"}


def gathered(folders: list[Path]) -> list[Record]:
    """A row for each run of each kind: scores before and after, steps, seed, and the curve of the dev score."""
    records = []
    for name in NAMES:
        for folder in folders:
            if not (results := folder / name / "results.json").is_file():
                continue
            run = json.loads(results.read_text(encoding="utf-8"))
            lines = (folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            curve = {line["step"]: line[DEV] for line in map(json.loads, lines) if DEV in line}
            fields = {key: run[key] for key in ("before", "after", "seed", "step", "seconds", "hardware")}
            records.append(Record(fields, kind=name, curve=curve))
    return records


def stages_table(run: Run) -> Table:
    """Spearman × 100 after each training: the mean of the seeds, and the lowest and the highest."""
    start = next(row.before for row in run.rows if row.kind == "nli")
    rows = [["jaxwhiten-tiny", "", number(start[DEV]), number(start[TEST]), ""]]
    for name, label in NAMES.items():
        dev, test = ([row.after[split] for row in run.rows if row.kind == name] for split in (DEV, TEST))
        interval = ""
        if len(test) > 1:
            interval = f"{min(test):.2f}–{max(test):.2f}"
        rows.append([label, str(len(test)), number(fmean(dev)), number(fmean(test)), interval])
    return Table(["trained on", "seeds", "dev", "test", "lowest to highest"], rows)


def draw_curves(run: Run, path: Path) -> Path:
    """The dev score against the steps on STS-B, a line per seed."""
    with new_figure(path, 6.4, 3.2) as figure:
        axis = figure.subplots()
        for name, color in zip(("both", "alone"), COLORS, strict=False):
            for number, row in enumerate(row for row in run.rows if row.kind == name):
                label = None if number else NAMES[name]
                axis.plot(
                    [int(step) for step in row.curve],
                    [*row.curve.values()],
                    "o-",
                    ms=3,
                    lw=1.4,
                    color=color,
                    label=label,
                )
        axis.set(xlabel="steps on STS-B", ylabel="STS-B dev, Spearman × 100")
        axis.legend()
    return path


TABLES = {"stages_table": stages_table}


def main() -> None:
    folders = [*map(Path, sys.argv[1:])]
    arguments = {"folders": [folder.name for folder in folders], "config": "configs/nli_stsb_small.py"}
    Run(header("eval.stages", arguments, complete=True), gathered(folders)).save(KEPT / "nli-stsb.jsonl")


if __name__ == "__main__":
    launch.run_without_config(main)
