"""jaxwhiten: BERT-whitening and Sentence-BERT in JAX and Flax.

Names are imported when first used, so that `import jaxwhiten` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxwhiten._version import __version__

if TYPE_CHECKING:
    from jaxwhiten.arrays import normalize
    from jaxwhiten.datasets import load_sts
    from jaxwhiten.encoding import CrossEncoder, Encoder
    from jaxwhiten.encoding.evaluation import evaluate
    from jaxwhiten.export import push_to_hub
    from jaxwhiten.head import PARAMETRIC, POOLINGS
    from jaxwhiten.search import build_index, load_index, paraphrase_mining, semantic_search
    from jaxwhiten.whitening import Moments, ScoredPairs, Whitening, tune

_NAMES = {
    "arrays": ("normalize",),
    "datasets": ("load_sts",),
    "encoding": ("CrossEncoder", "Encoder"),
    "encoding.evaluation": ("evaluate",),
    "export": ("push_to_hub",),
    "head": ("PARAMETRIC", "POOLINGS"),
    "search": ("build_index", "load_index", "paraphrase_mining", "semantic_search"),
    "whitening": ("Moments", "ScoredPairs", "Whitening", "tune"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "PARAMETRIC",
    "POOLINGS",
    "CrossEncoder",
    "Encoder",
    "Moments",
    "ScoredPairs",
    "Whitening",
    "__version__",
    "build_index",
    "evaluate",
    "load_index",
    "load_sts",
    "normalize",
    "paraphrase_mining",
    "push_to_hub",
    "semantic_search",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"jaxwhiten.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'jaxwhiten' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
