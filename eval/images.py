"""Draws the plots of docs/images from the runs that `eval.runs.find` finds.

python -m eval.images
"""

from __future__ import annotations

from pathlib import Path

from configs import launch
from eval import runs
from eval.common import say
from eval.report.front import draw_quality

FOLDER = Path("docs/images")
# README's picture, light and dark: a panel for each run.
QUALITY = {"Sentences of Wikipedia": "tasks/minilm-wikipedia-7000", "Captions (SNLI)": "tasks/minilm-snli"}
# The run of each other picture, and the function of its program that draws it.
IMAGES = {
    "growth": ("benchmarks/growth", "draw"),
    "scans": ("benchmarks/search_batches", "draw"),
    "serving-memory": ("benchmarks/serving_faults", "draw_memory"),
    "miniature": ("miniature/raw", "plot_scores"),
    "nli-stsb": ("nli-stsb", "draw_curves"),
}


def main() -> None:
    for name, (run_name, function) in IMAGES.items():
        path = FOLDER / f"{name}.png"
        run = runs.find(run_name)
        drawn = run is not None and getattr(runs.module(run), function)(run, path)
        state = f"left as it was, the run {run_name} is not there"
        if drawn:
            state = "drawn"
        say(f"{path}: {state}")
    quality = {title: runs.find(run_name) for title, run_name in QUALITY.items()}
    for name, dark in (("quality", False), ("quality-dark", True)):
        if all(quality.values()):
            draw_quality(quality, FOLDER / f"{name}.png", dark)


if __name__ == "__main__":
    launch.run_without_config(main)
