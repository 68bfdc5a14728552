"""Text to vectors: the encoder, its batches and compiled forward, and the store of embeddings."""

from typing import TYPE_CHECKING

from jaxwhiten._lazy import exports
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.engines import length_ladder
from jaxwhiten.head import PoolingWarning

if TYPE_CHECKING:
    from jaxwhiten.encoding.cross import CrossEncoder
    from jaxwhiten.encoding.distillation import Vocabulary, distil, distil_static
    from jaxwhiten.encoding.store import EmbeddingStore

__getattr__, __dir__ = exports(__name__)

__all__ = ["CrossEncoder", "EmbeddingStore", "Encoder", "PoolingWarning", "Vocabulary", "distil", "distil_static"]
__all__ += ["length_ladder"]
