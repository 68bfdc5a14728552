"""Hard negatives: texts that an encoder finds near, but that do not belong together."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxwhiten.datasets.examples import linked_groups
from jaxwhiten.search import build_index
from jaxwhiten.text import SIDES, Texts, as_texts


def mine_negatives(
    encoder: Any, first: Texts, second: Texts, *, count: int, depth: int = 30, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Hard negatives for pairs that belong together: texts that an `Encoder` finds near, but no chain of pairs links.

    For each distinct text of `first`, `count` negatives are drawn from the `depth` nearest unlinked texts of `second`.

    Returns:
      Texts of `first`, and a negative for each.
    """
    numbers: dict[str, int] = {}
    sides = map(as_texts, (first, second), SIDES)
    a, b = (np.array([numbers.setdefault(text, len(numbers)) for text in side], int) for side in sides)
    texts, queries, candidates = list(numbers), np.unique(a), np.unique(b)
    group = linked_groups(np.stack([a, b]))
    vectors = encoder.encode(texts)
    most = min(depth + int(np.bincount(group).max()), len(candidates))
    _, ids = build_index(vectors[candidates], "jax").search(vectors[queries], most)
    found = candidates[ids]
    free = group[found] != group[queries][:, None]
    free &= np.cumsum(free, axis=1) <= depth
    drawn = np.argsort(np.where(free, np.random.default_rng(seed).random(free.shape), 2.0), axis=1)[:, :count]
    there = np.take_along_axis(free, drawn, axis=1)
    owners = np.broadcast_to(queries[:, None], there.shape)[there]
    negatives = np.take_along_axis(found, drawn, axis=1)[there]
    return [texts[i] for i in owners.tolist()], [texts[i] for i in negatives.tolist()]
