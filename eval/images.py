"""Draws the plots of docs/images from the runs that eval.tables finds.

python -m eval.images
"""

from __future__ import annotations

import json
from pathlib import Path

from configs import launch
from eval import report, stages
from eval.common import say
from eval.report import plots
from eval.report.front import draw_quality
from eval.tables import load

FOLDER = Path("docs/images")
# README's picture, light and dark: a panel for each run.
QUALITY = {"Sentences of Wikipedia": "tasks/minilm-wikipedia-7000", "Captions (SNLI)": "tasks/minilm-snli"}
IMAGES = {
    "codes": ("tasks/minilm-wikipedia-7000", report.codes.PLOTS["quality_by_bytes.png"]),
    "engines-memory": ("benchmarks/engines_scale", (plots.engines_memory,)),
    "growth": ("benchmarks/growth", (plots.growth,)),
    "serving-memory": ("benchmarks/serving_faults", (plots.serving_memory,)),
    "miniature": ("miniature/raw", report.sts.PLOTS["score_by_k.png"]),
}


def main() -> None:
    for name, (of, (draw, *_)) in IMAGES.items():
        path, run = FOLDER / f"{name}.png", load(of)
        drawn = run is not None and draw(run, path)
        say(f"{path}: " + ("drawn" if drawn else f"left as it was, the run {of} is not there"))
    if stages.KEPT.is_file():
        stages.draw_curves(json.loads(stages.KEPT.read_text(encoding="utf-8")), FOLDER / "nli-stsb.png")
    runs = {title: load(of) for title, of in QUALITY.items()}
    for name, dark in (("quality", False), ("quality-dark", True)):
        if all(runs.values()):
            draw_quality(runs, FOLDER / f"{name}.png", dark)


if __name__ == "__main__":
    launch.run_without_config(main)
