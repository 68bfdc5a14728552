"""Text to vectors: the encoder, its batches and compiled forward, and the store of embeddings."""

from jaxwhiten.encoding.batching import length_ladder
from jaxwhiten.encoding.cross import CrossEncoder
from jaxwhiten.encoding.distillation import Vocabulary, distil, distil_static
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.encoding.evaluation import is_tuned, shipped_isoscore
from jaxwhiten.encoding.loading import PoolingWarning
from jaxwhiten.encoding.store import EmbeddingStore, text_fingerprint
