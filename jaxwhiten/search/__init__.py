"""Nearest-neighbour search: one interface over FAISS and JAX; index folders remember how they were made."""

from jaxwhiten.search.base import Index
from jaxwhiten.search.registry import BACKENDS, build_index, load_index
from jaxwhiten.search.text import Hit, add_text, search_text

__all__ = ["BACKENDS", "Hit", "Index", "add_text", "build_index", "load_index", "search_text"]
