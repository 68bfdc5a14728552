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
    from jaxwhiten.head import POOLINGS
    from jaxwhiten.search import build_index, load_index, paraphrase_mining, semantic_search
    from jaxwhiten.whitening.moments import Moments
    from jaxwhiten.whitening.tuning import ScoredPairs, tune
    from jaxwhiten.whitening.whitening import Whitening

_WHERE = {
    "CrossEncoder": "encoding",
    "Encoder": "encoding",
    "Moments": "whitening",
    "POOLINGS": "head",
    "ScoredPairs": "whitening",
    "Whitening": "whitening",
    "build_index": "search",
    "evaluate": "encoding.evaluation",
    "load_index": "search",
    "load_sts": "datasets",
    "normalize": "whitening",
    "paraphrase_mining": "search",
    "push_to_hub": "export",
    "semantic_search": "search",
    "tune": "whitening",
}

__all__ = [
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
