"""jaxwhiten: BERT-whitening and Sentence-BERT in JAX and Flax.

Names are imported when first used, so that `import jaxwhiten` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxwhiten._version import __version__

if TYPE_CHECKING:
    from jaxwhiten.arrays import normalize as normalize
    from jaxwhiten.datasets import load_sts as load_sts
    from jaxwhiten.encoding import CrossEncoder as CrossEncoder
    from jaxwhiten.encoding import Encoder as Encoder
    from jaxwhiten.encoding.evaluation import evaluate as evaluate
    from jaxwhiten.export import push_to_hub as push_to_hub
    from jaxwhiten.head import POOLINGS as POOLINGS
    from jaxwhiten.search import Index as Index
    from jaxwhiten.search import build_index as build_index
    from jaxwhiten.search import load_index as load_index
    from jaxwhiten.search import paraphrase_mining as paraphrase_mining
    from jaxwhiten.search import semantic_search as semantic_search
    from jaxwhiten.whitening import Moments as Moments
    from jaxwhiten.whitening import ScoredPairs as ScoredPairs
    from jaxwhiten.whitening import Whitening as Whitening
    from jaxwhiten.whitening import tune as tune

_NAMES = {
    "arrays": ("normalize",),
    "datasets": ("load_sts",),
    "encoding": ("CrossEncoder", "Encoder"),
    "encoding.evaluation": ("evaluate",),
    "export": ("push_to_hub",),
    "head": ("POOLINGS",),
    "search": ("Index", "build_index", "load_index", "paraphrase_mining", "semantic_search"),
    "whitening": ("Moments", "ScoredPairs", "Whitening", "tune"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"jaxwhiten.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'jaxwhiten' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
