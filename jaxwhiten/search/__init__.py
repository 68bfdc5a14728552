"""Nearest-neighbor search: one interface over FAISS and JAX; index folders remember how they were made."""

from jaxwhiten.locks import locked
from jaxwhiten.search.backend import BACKENDS
from jaxwhiten.search.build import build_index
from jaxwhiten.search.index import Hit, Index, load_index
from jaxwhiten.search.semantic import paraphrase_mining, paraphrase_mining_embeddings, semantic_search
from jaxwhiten.search.text import add_text, rerank_hits, search_text

__all__ = ["BACKENDS", "Hit", "Index", "add_text", "build_index", "load_index", "locked"]
__all__ += ["paraphrase_mining", "paraphrase_mining_embeddings", "rerank_hits", "search_text", "semantic_search"]
