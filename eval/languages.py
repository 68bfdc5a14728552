"""Whitenings and codes fitted on one language and used on another: Chinese pairs, fitted on English or on Chinese.

`python -m eval.languages DATA --model NAME=MODEL -o runs/mteb-languages.jsonl`

DATA has sts_zh (STS-B.test.data, STS-B.train.data: two sentences and a score, split by tabs) and the English STS-B.
Fits see sentences of a training set; no prompt is used. Codes are on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eval.beir import BYTES, TABLES, Rows, program, stored
from eval.data import load_sts
from eval.mteb import GAMMAS, STS, read_scored
from jaxwhiten import Encoder, Moments, SpectrumCode, Whitening, evaluate, io

SENTENCES = 6000  # of each training set


def languages(folder: Path, _model: str, encoder: Encoder, _check: bool) -> Iterator[tuple[str, Rows]]:
    """Raw vectors, then each whitening and code, fitted on English and on Chinese."""
    chinese = folder / "sts_zh"
    pairs = read_scored(chinese / "STS-B.test.data")
    english = load_sts("STS-B", folder).splits["train"]
    sides = {
        "English": (english.sentence1, english.sentence2),
        "Chinese": read_scored(chinese / "STS-B.train.data")[:2],
    }
    rows = Rows()
    for language, (first, second) in sides.items():
        sentences = list(dict.fromkeys([*first, *second]))[:SENTENCES]
        moments = Moments().update(stored(encoder, sentences))
        ways = {
            f"whitened, γ = {gamma:g}": encoder.with_whitening(Whitening.from_moments(moments, gamma=gamma))
            for gamma in GAMMAS
        }
        ways |= {f"code, {size} bytes": encoder.with_code(SpectrumCode(bytes=size).fit(moments)) for size in BYTES}
        for name, way in ways.items():
            raw, form = evaluate(way, pairs, encode=stored).rows[:2]
            if not rows:
                rows.append(io.to_json(raw))
            rows.append(io.to_json(form) | {"name": f"{name}, fitted on {language}"})
    yield STS, rows


__all__ = ["TABLES", "languages"]

if __name__ == "__main__":
    program("eval.languages", __doc__, languages)
