"""BERT-whitening and Sentence-BERT in JAX and Flax: better, smaller sentence vectors, and search in them.

encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
vectors = encoder.encode(texts)                # float32 [n, d]
small = encoder.shrink(texts, bytes=96)        # fitted on these texts, without labels
index = small.index(texts, ids=ids)            # codes for documents, float queries
index.search("someone plays music", k=3)       # hits with id, score and text
evaluate(small, "pairs.csv", versus=encoder)   # on scored pairs or searches, with TF-IDF
train(encoder, "pairs.csv").save("tuned")      # on pairs, triplets, scores or classes

With vectors, but no encoder, use `Moments`, `Whitening`, `SpectrumCode` and `build_index`.
Names are imported when first used, so that `import jaxwhiten` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxwhiten._lazy import exports
from jaxwhiten._version import __version__

if TYPE_CHECKING:
    from jaxwhiten.arrays import normalize
    from jaxwhiten.codes import SpectrumCode, load_code
    from jaxwhiten.datasets import load_sts
    from jaxwhiten.encoding import CrossEncoder, Encoder
    from jaxwhiten.export import push_to_hub
    from jaxwhiten.head import POOLINGS
    from jaxwhiten.options import TrainingOptions
    from jaxwhiten.scoring import ScoredPairs, evaluate
    from jaxwhiten.search import Index, build_index, load_index, paraphrase_mining, semantic_search
    from jaxwhiten.space import Space
    from jaxwhiten.training import train
    from jaxwhiten.vectors import Vectors
    from jaxwhiten.whitening import Moments, Whitening

__getattr__, __dir__ = exports(__name__)

__all__ = ["POOLINGS", "CrossEncoder", "Encoder", "Index", "Moments", "ScoredPairs", "Space", "SpectrumCode"]
__all__ += ["TrainingOptions", "Vectors", "Whitening", "__version__", "build_index", "evaluate", "load_code"]
__all__ += ["load_index", "load_sts", "normalize", "paraphrase_mining", "push_to_hub", "semantic_search", "train"]
