"""Nearest-neighbor search: one interface over FAISS and JAX; an index is a file that remembers how it was made."""

from jaxwhiten.search.backends import BACKENDS
from jaxwhiten.search.build import build_index
from jaxwhiten.search.documents import Document
from jaxwhiten.search.hits import Hit, Hits
from jaxwhiten.search.index import Index
from jaxwhiten.search.joined import JoinedIndex, load_index
from jaxwhiten.search.semantic import paraphrase_mining, paraphrase_mining_embeddings, semantic_search
from jaxwhiten.search.text import rerank_hits

__all__ = ["BACKENDS", "Document", "Hit", "Hits", "Index", "JoinedIndex", "build_index"]
__all__ += ["load_index", "paraphrase_mining", "paraphrase_mining_embeddings", "rerank_hits", "semantic_search"]
