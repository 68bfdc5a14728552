"""Published retrieval figures, and the rows of a run that are the same setting. The numbers lie in the CSV file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from eval.published import comparable, model_name, read_lines
from jaxwhiten.report import results

FIGURES = ("mrr_at_10", "time_ms", "memory_gib")


@functools.cache
def read() -> tuple[tuple[dict[str, str], dict[str, float]], ...]:
    """Every published row: its setting and where it comes from, as the file writes them, and its figures."""
    return tuple(
        ({**about, **line}, {name: float(line[name]) for name in FIGURES})
        for about, line in read_lines(Path(__file__).parent)
    )


def compare(rows: Sequence[results.RetrievalRow], dataset: results.Dataset) -> tuple[results.Published, ...]:
    """Published rows that are the same setting as a row of the run, with the run's figures beside.

    The same means: model (the last part of its name), pooling, whitening with β = γ = 1, k, backend with its `nlist`
    and `nprobe`, and the whole data set with its numbers of documents and queries.

    Args:
      rows: Rows of results.
      dataset: Name and numbers of documents and queries of the run.
    """
    matches = []
    for row in filter(comparable, rows):
        setting = {
            "model": model_name(row),
            **{name: getattr(row, name) for name in ("pooling", "whitening", "k", "backend")},
            **{name: row.options.get(name) for name in ("nlist", "nprobe")},
            "dataset": dataset.name,
            "documents": dataset.documents,
            "queries": dataset.queries,
        }
        ours = {name: getattr(row, name) for name in FIGURES}
        for known, figures in read():
            if all(known[name] == str(value) for name, value in setting.items()):
                about = (f"{row.name}, {row.backend}", known["source"], known["citation"], known["machine"])
                matches.append(results.Published(*about, figures, ours))
    return tuple(matches)
