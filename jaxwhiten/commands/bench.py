"""`jaxwhiten bench MODEL [INPUT]`: every engine and precision on this machine: speed, and agreement with float32."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import Report, Source, add
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.typing import Json

if TYPE_CHECKING:
    import numpy as np

    from jaxwhiten.views import View

_ROUNDS = 3
_QUERIES = 50
_CLOSE = 0.999  # mean cosine to float32 of what is recommended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "model", "Hugging Face model ID or folder", type=Source)
    add(
        parser,
        "input",
        "texts like yours, in a format that encode reads; default: 780 shipped sentences",
        type=Source,
        nargs="?",
    )


def run(args: argparse.Namespace) -> Report:
    import numpy as np

    from jaxwhiten.commands.texts import nonempty, sentences
    from jaxwhiten.datasets import load_sts
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.engines import DEFAULT, ENGINES, chosen
    from jaxwhiten.head import own_pooling
    from jaxwhiten.metrics import cosine_pairs
    from jaxwhiten.models.folders import resolve_folder
    from jaxwhiten.parameters import DTYPES
    from jaxwhiten.progress import note

    pairs = load_sts("sts_sample").splits["test"]
    if args.input:
        texts = list(nonempty(sentences(args.input), args.input))
    else:
        texts = [*pairs.sentence1, *pairs.sentence2]
    folder = resolve_folder(args.model)
    queries = texts[: _QUERIES // _ROUNDS]
    pooling = own_pooling(folder)
    views: dict[tuple[str, str], View] = {}
    vectors: dict[tuple[str, str], np.ndarray] = {}
    for engine in ENGINES:
        for dtype in DTYPES:
            try:
                view = Encoder.from_pretrained(folder, pooling=pooling, engine=engine, dtype=dtype).view.floats
                # As plain arrays, because vectors of two dtypes are in two spaces.
                vectors[engine, dtype] = view(texts, show_progress=False).view(np.ndarray)
                views[engine, dtype] = view
            except JaxwhitenError as error:
                note(f"skipped: {engine}, {dtype}: {error}")
    seconds: dict[tuple[str, str], float] = {}
    calls: dict[tuple[str, str], list[float]] = {setting: [] for setting in views}
    for number in range(_ROUNDS + 1):  # the first is for programs to be compiled
        for setting, view in views.items():
            seconds_of = [_seconds(view, text) for text in queries]
            if number:
                calls[setting] = calls[setting] + seconds_of
            else:
                calls[setting] = []
            seconds[setting] = min(seconds.get(setting, 1e9), _seconds(view, texts))
    usual = chosen("auto", folder), "float32"
    rows: list[Json] = [
        {
            "engine": setting[0],
            "dtype": setting[1],
            "texts_per_second": len(texts) / seconds[setting],
            "p50_ms": 1000 * sorted(calls[setting])[len(calls[setting]) // 2],
            "cosine": float(cosine_pairs(vectors[setting], vectors[DEFAULT, "float32"]).mean()),
            "default": setting == usual,
        }
        for setting in sorted(views, key=lambda setting: seconds[setting])
    ]
    best = next(row for row in rows if row["cosine"] > _CLOSE)
    gain = seconds[usual] * best["texts_per_second"] / len(texts)
    return Report(_table(rows, best, gain), {"texts": len(texts), "rows": rows, "recommended": best})


def _table(rows: list[Json], best: Json, gain: float) -> str:
    """The rows as text, and the options of the best one, which is `gain` times as fast as the default."""
    lines = [f"{'engine':<12}{'dtype':<12}{'texts/s':>9}{'p50 ms':>9}{'cosine':>9}"]
    line = "{engine:<12}{dtype:<12}{texts_per_second:>9.0f}{p50_ms:>9.2f}{cosine:>9.4f}"
    lines += map(line.format_map, rows)
    options = f"--engine {best['engine']} --dtype {best['dtype']}, {gain:.1f} times as fast as the default"
    lines.append(f"Recommended: {'the default' if best['default'] else options}.")
    return "\n".join(lines)


def _seconds(view: View, texts: str | list[str]) -> float:
    start = time.perf_counter()
    view(texts, show_progress=False)
    return time.perf_counter() - start
