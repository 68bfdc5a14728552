"""jaxwhiten: BERT-whitening and Sentence-BERT in JAX and Flax.

Names are imported when first used, so that `import jaxwhiten` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxwhiten._version import __version__
from jaxwhiten.lazy import exports

if TYPE_CHECKING:
    from jaxwhiten.arrays import normalize as normalize
    from jaxwhiten.codes import SpectrumCode as SpectrumCode
    from jaxwhiten.codes import load_code as load_code
    from jaxwhiten.datasets import load_sts as load_sts
    from jaxwhiten.encoding import CrossEncoder as CrossEncoder
    from jaxwhiten.encoding import Encoder as Encoder
    from jaxwhiten.export import push_to_hub as push_to_hub
    from jaxwhiten.head import POOLINGS as POOLINGS
    from jaxwhiten.parameters import TrainingOptions as TrainingOptions
    from jaxwhiten.scoring import evaluate as evaluate
    from jaxwhiten.search import Index as Index
    from jaxwhiten.search import build_index as build_index
    from jaxwhiten.search import load_index as load_index
    from jaxwhiten.search import paraphrase_mining as paraphrase_mining
    from jaxwhiten.search import semantic_search as semantic_search
    from jaxwhiten.training import train as train
    from jaxwhiten.whitening import Moments as Moments
    from jaxwhiten.whitening import ScoredPairs as ScoredPairs
    from jaxwhiten.whitening import Whitening as Whitening
    from jaxwhiten.whitening import tune as tune

_NAMES = {
    "arrays": ("normalize",),
    "codes": ("SpectrumCode", "load_code"),
    "datasets": ("load_sts",),
    "encoding": ("CrossEncoder", "Encoder"),
    "scoring": ("evaluate",),
    "export": ("push_to_hub",),
    "head": ("POOLINGS",),
    "search": ("Index", "build_index", "load_index", "paraphrase_mining", "semantic_search"),
    "parameters": ("TrainingOptions",),
    "training": ("train",),
    "whitening": ("Moments", "ScoredPairs", "Whitening", "tune"),
}
__all__ = ["__version__", *(name for names in _NAMES.values() for name in names)]
__getattr__, __dir__ = exports(__name__, _NAMES)
