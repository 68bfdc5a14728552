"""Backends by name."""

from __future__ import annotations

from collections.abc import Mapping

from jaxwhiten.search import faiss
from jaxwhiten.search.backend import Backend
from jaxwhiten.search.jax_flat import JaxFlat

BACKENDS: Mapping[str, type[Backend]] = {
    "faiss-flat": faiss.FaissFlat,
    "faiss-fast": faiss.FaissFast,
    "faiss-ivf": faiss.FaissIvf,
    "faiss-hnsw": faiss.FaissHnsw,
    "faiss-ivfpq": faiss.FaissIvfPq,
    "faiss-gpu-flat": faiss.FaissGpuFlat,
    "faiss-gpu-ivf": faiss.FaissGpuIvf,
    "jax": JaxFlat,
}
