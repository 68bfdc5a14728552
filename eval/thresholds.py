"""Scores of codes beside the cosines of float32, and what a threshold that was chosen for float32 finds in codes.

`python -m eval.thresholds quora_duplicates.tsv --model sentence-transformers/all-MiniLM-L6-v2`

The file has pairs of equal questions in Quora's columns. The second questions of a sample are coded, by a code fitted
on them, and the first stay float32, as in an index. Every first question is compared with every second one; those are
equal that pairs connect, in one step or several. Half of the first questions choose the least threshold at which
float32 has the asked precision; precision and recall are those of the other half. Each code also chooses one for
itself. Writes docs/runs/thresholds.jsonl.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from eval.report import Table, number
from eval.runs import KEPT, Record, Run, header
from jaxwhiten import Encoder, normalize
from jaxwhiten.arrays import blocks
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import read_pairs
from jaxwhiten.encoding import EmbeddingStore

COLUMNS = ("question1", "question2", "is_duplicate")
_SEED = 0  # of the sample, of random pairs, and of the halves
_LEAST = 0.5  # lower scores are below every threshold
_ROWS = 1000  # compared at a time


def groups(first: list[str], second: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the groups of equal questions, for the questions of both sides of pairs."""
    number = {text: i for i, text in enumerate(dict.fromkeys([*first, *second]))}
    sides = [[number[text] for text in texts] for texts in (first, second)]
    links = coo_matrix((np.ones(len(first)), sides), (len(number), len(number)))
    group = connected_components(links, directed=False)[1]
    return group[sides[0]], group[sides[1]]


class Compared:
    """The scores of all pairs of two sides that may reach a threshold, and which of them are of equal questions."""

    def __init__(self, first: np.ndarray, second: np.ndarray, group: tuple[np.ndarray, np.ndarray]) -> None:
        scores = [np.empty(0, np.float32)]
        matches = [np.empty(0, bool)]
        self.same = 0  # pairs of equal questions, also below `_LEAST`
        for part in blocks(len(first), _ROWS):
            product = first[part] @ second.T
            equal = group[0][part, None] == group[1]
            candidates = product >= _LEAST
            self.same += int(equal.sum())
            scores.append(product[candidates])
            matches.append(equal[candidates])
        scores = np.concatenate(scores)
        matches = np.concatenate(matches)
        order = np.argsort(-scores, kind="stable")
        self.scores = scores[order]
        self.right = np.cumsum(matches[order])

    def threshold(self, precision: float) -> float:
        """The least score such that a share `precision` of the pairs with at least this score are of equal questions.

        ValueError if there is none.
        """
        precise = np.flatnonzero(self.right >= precision * np.arange(1, len(self.right) + 1))
        if not len(precise):
            raise ValueError(f"no threshold has a precision of {precision}")
        return float(self.scores[precise[-1]])

    def judged(self, least: float) -> dict[str, float]:
        """Precision and recall of the pairs with at least this score."""
        count = int(np.searchsorted(-self.scores, -least, side="right"))
        right = 0.0
        if count:
            right = float(self.right[count - 1])
        return {"precision": right / max(1, count), "recall": right / self.same}


def compared(
    first: np.ndarray, second: np.ndarray, group: tuple[np.ndarray, np.ndarray], sizes: list[int], precision: float
) -> list[Record]:
    """A threshold for vectors of equal questions, and what it finds in float32 and in codes of each size."""
    queries = normalize(first)
    exact = normalize(second)
    rng = np.random.default_rng(_SEED)
    chooses = rng.permutation(len(queries)) % 2 == 0
    shuffled = rng.permutation(len(exact))
    rows: list[Record] = []
    least = 0.0
    for size in (None, *sizes):
        y = exact
        if size is not None:
            code = SpectrumCode(bytes=size).fit(exact)
            y = normalize(code.decode(code.encode(exact)))
        threshold = Compared(queries[chooses], y, (group[0][chooses], group[1])).threshold(precision)
        if size is None:  # float32, which is first
            least = threshold
        held_out = Compared(queries[~chooses], y, (group[0][~chooses], group[1]))
        rows.append(
            Record(bytes=size, **held_out.judged(least), own=Record(threshold=threshold, **held_out.judged(threshold)))
        )
        for name, places in (("equal", np.arange(len(exact))), ("random", shuffled)):
            errors = np.abs(np.einsum("nd,nd->n", queries, (y - exact)[places]))
            rows[-1] |= {f"{name}_median": float(np.median(errors)), f"{name}_99": float(np.quantile(errors, 0.99))}
    return rows


def thresholds_table(run: Run) -> Table:
    """How far scores are from float32's cosines, and what float32's threshold finds, by bytes."""
    rows = []
    for row in run.rows:
        size = "float32"
        errors = ["", ""]
        if row["bytes"] is not None:
            size = f"{row['bytes']} B"
            errors = [
                f"{number(row[f'{name}_median'], 3)}, {number(row[f'{name}_99'], 3)}" for name in ("equal", "random")
            ]
        rates = [f"{number(judged['precision'], 3)}, {number(judged['recall'], 3)}" for judged in (row, row["own"])]
        rows.append([size, *errors, *rates, number(row["own"]["threshold"], 3)])
    columns = ["documents", "off: equal questions, median, 99%", "off: random pairs, median, 99%"]
    columns += ["float32's threshold: precision, recall", "its own: precision, recall", "its own threshold"]
    return Table(columns, rows)


TABLES = {"thresholds_table": thresholds_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", help="pairs, tab-separated, with Quora's columns; all of them of equal questions")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--engine", default="openvino")
    parser.add_argument("--pairs", type=int, default=10_000, help="of the sample")
    parser.add_argument("--bytes", default="24,48,96", help="sizes of codes")
    parser.add_argument("--precision", type=float, default=0.9)
    parser.add_argument("-o", "--output", default=KEPT / "thresholds.jsonl", help="the file to write")
    args = parser.parse_args()
    pairs = read_pairs(args.file, COLUMNS)
    group = groups(pairs.sentence1, pairs.sentence2)
    sample = np.sort(np.random.default_rng(_SEED).permutation(len(pairs))[: args.pairs])
    encoder = Encoder.from_pretrained(args.model, engine=args.engine)
    store = EmbeddingStore()
    first, second = (
        np.asarray(store.encode(encoder, [texts[i] for i in sample])) for texts in (pairs.sentence1, pairs.sentence2)
    )
    sizes = [int(size) for size in args.bytes.split(",")]
    rows = compared(first, second, (group[0][sample], group[1][sample]), sizes, args.precision)
    arguments = {name: value for name, value in vars(args).items() if name not in ("file", "output")}
    run = Run(header("eval.thresholds", arguments, complete=True, seed=_SEED, pairs=len(first)), rows)
    run.save(args.output)
    print(thresholds_table(run).text())


if __name__ == "__main__":
    main()
