"""Draws the rooms of the library on their floors, and the way of a text and of a vector through them.

    python docs/house.py      # writes docs/images/house.png, in which each room imports only from the floors below it

Floors are those of import-linter's contract in pyproject.toml. A walk is recorded while jaxwhiten-tiny answers a query:
rooms in the order in which the query enters them first.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jaxwhiten"
PICTURE = ROOT / "docs" / "images" / "house.png"
WALKS = {"a text: embed and search": "#1f6fb4", "a vector: search": "#c8551b"}
_BASE = 6  # the lowest floors, drawn as one: modules that every room uses
_WIDTH = 12.0


def floors() -> list[list[str]]:
    """The rooms of each floor, the highest first; the last one has all rooms of the base."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = options["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["jaxwhiten"])
    rooms = [[room.strip() for room in layer.split("|")] for layer in layers]
    return [*rooms[:-_BASE], [room for floor in rooms[-_BASE:] for room in floor]]


def files_of(room: str) -> list[Path]:
    """The modules of a room; the first has the room's docstring."""
    folder = PACKAGE / room
    if folder.is_dir():
        return sorted(folder.rglob("*.py"))
    return [folder.with_suffix(".py")]


def lines_of(room: str) -> int:
    """The number of lines of a room."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files_of(room))


def purpose(room: str) -> str:
    """The first sentence of the docstring of a room."""
    text = ast.get_docstring(ast.parse(files_of(room)[0].read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def walk(journey: Callable[[], Any]) -> list[str]:
    """The rooms that a call enters, in the order of their first function, also in other threads."""
    rooms = dict[str, None]()

    def note(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            rooms.setdefault(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        journey()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(rooms)


def walks() -> dict[str, list[str]]:
    """The rooms of each walk of `WALKS`, by a second query, for which everything is compiled."""
    import jaxwhiten

    encoder = jaxwhiten.Encoder.from_pretrained("jaxwhiten-tiny")
    index = encoder.index(["A dog runs.", "A cat sleeps.", "A child reads."])
    query = encoder.encode("A dog plays.")[None]
    journeys = (lambda: index.search("A dog plays.", k=1), lambda: index.search(query, k=1))
    steps = []
    for journey in journeys:
        journey()
        steps.append(walk(journey))
    return dict(zip(WALKS, steps, strict=True))


def draw(path: Path, rooms: list[list[str]], steps: dict[str, list[str]]) -> None:
    """The picture: a row of boxes for each floor, and in each box the numbers of the walks that enter it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(_WIDTH, 0.62 * len(rooms) + 0.9), layout="constrained")
    for height, floor in enumerate(reversed(rooms)):
        width = _WIDTH / len(floor)
        small = len(floor) > 6
        for place, room in enumerate(floor):
            left = place * width
            box = plt.Rectangle((left + 0.03, height - 0.42), width - 0.06, 0.84, fc="#f4f4f4", ec="#999999", lw=0.8)
            axes.add_patch(box)
            text = f"{room}, {lines_of(room):,} lines"
            if small:
                text = text.replace(", ", "\n", 1)
            else:
                about = textwrap.shorten(purpose(room), int(13 * width), placeholder=" …")
                axes.text(left + 0.8, height - 0.24, about, ha="left", va="center", fontsize=7, color="#444444")
            axes.text(left + 0.1, height + 0.14, text, ha="left", va="center", fontsize=6 if small else 8)
            entered = [(color, steps[name].index(room) + 1) for name, color in WALKS.items() if room in steps[name]]
            for number, (color, step) in enumerate(entered):
                x = left + 0.2 + 0.3 * number
                axes.plot(x, height - 0.24, "o", color=color, ms=10)
                axes.text(x, height - 0.245, str(step), color="white", fontsize=7, ha="center", va="center")
    for name, color in WALKS.items():
        axes.plot([], [], "o", color=color, ms=9, label=f"{name}: {len(steps[name])} rooms, numbered as entered")
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(-0.5, len(rooms) - 0.5)
    axes.axis("off")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw(PICTURE, floors(), walks())
    print(f"wrote {PICTURE.relative_to(ROOT)}")
