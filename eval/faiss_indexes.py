"""Indexes of float32 vectors by FAISS itself, on the CPU and on a GPU, of raw or of whitened vectors.

References:
  Su, Cao, Liu, Ou 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval", section 4.4:
  1024 inverted lists, of which 5 are searched.
  Johnson, Douze, Jégou 2019, "Billion-scale similarity search with GPUs".
"""

from __future__ import annotations

import contextlib
import time
from types import ModuleType

import numpy as np

from jaxwhiten import Whitening, normalize
from jaxwhiten.errors import MissingDependencyError, install_command, optional
from jaxwhiten.runtime import hardware

OPTIONS = {"faiss-ivf": ("nlist", "nprobe"), "faiss-gpu-flat": (), "faiss-gpu-ivf": ("nlist", "nprobe")}
_BLOCK = 16384  # rows that are mapped at a time
# k-means of lists: its seed, and the vectors per list that it needs and takes
_SEED = 1234
_LEAST = 39
_MOST = 256


class FaissIndex:
    """An index by one of the names of `OPTIONS`, searched by vectors like `jaxwhiten.Index`."""

    def __init__(
        self, vectors: np.ndarray, name: str, *, whitening: Whitening | None = None, nlist: int = 1024, nprobe: int = 5
    ) -> None:
        start = time.perf_counter()
        self._faiss = faiss = _checked(name)
        self._whitening = whitening
        self.size = len(vectors)
        self.dimension = self.prepare(vectors[:1]).shape[1]
        self.options = dict[str, int]()
        self.notes = list[str]()
        kind = "Flat"
        if OPTIONS[name]:
            lists = min(nlist, max(1, self.size // _LEAST))
            self.options = {"nlist": lists, "nprobe": min(nprobe, lists)}
            if lists < nlist:
                self.notes.append(f"nlist lowered from {nlist} to {lists} for {self.size} documents.")
            kind = f"IVF{lists},Flat"
        self._index = faiss.index_factory(self.dimension, kind, faiss.METRIC_INNER_PRODUCT)
        if "gpu" in name:
            self._index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, self._index)
        if self.options:
            self._index.cp.seed = _SEED
            self._index.nprobe = self.options["nprobe"]
            sample = np.sort(np.random.default_rng(_SEED).permutation(self.size)[: _MOST * self.options["nlist"]])
            with hardware.faiss_products():
                self._index.train(self.prepare(vectors[sample]))
        for first in range(0, self.size, _BLOCK):
            self._index.add(self.prepare(vectors[first : first + _BLOCK]))
        self.build_seconds = time.perf_counter() - start

    def prepare(self, x: np.ndarray) -> np.ndarray:
        """Raw vectors as the index stores them."""
        x = np.asarray(x if self._whitening is None else self._whitening.transform(x), np.float32)
        return np.ascontiguousarray(normalize(x))

    def search(self, queries: np.ndarray, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Scores, best first, and rows; −∞ and −1 for a missing one. Equal scores are in the order of their rows."""
        x = self.prepare(queries)
        with hardware.faiss_on_one_thread() if len(x) == 1 else contextlib.nullcontext():
            scores, rows = self._index.search(x, k)
        scores[rows < 0] = -np.inf
        order = np.lexsort((rows, -scores))
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)

    @property
    def nbytes(self) -> int:
        """Size of the index as FAISS writes it."""
        on_gpu = hasattr(self._faiss, "GpuIndex") and isinstance(self._index, self._faiss.GpuIndex)
        index = self._faiss.index_gpu_to_cpu(self._index) if on_gpu else self._index
        return int(self._faiss.serialize_index(index).nbytes)


def _checked(name: str) -> ModuleType:
    """FAISS; MissingDependencyError if an index of this name needs a GPU that FAISS does not find."""
    on_gpu = "gpu" in name
    faiss: ModuleType = optional("faiss", "cuda" if on_gpu else "cpu", name, "faiss-gpu" if on_gpu else "faiss-cpu")
    if on_gpu and not hasattr(faiss, "StandardGpuResources"):
        raise MissingDependencyError(
            f"{name} needs faiss-gpu, but the CPU build of FAISS is installed:"
            f" pip uninstall faiss-cpu, then {install_command('cuda')} (they cannot be installed together)."
        )
    if on_gpu and not faiss.get_num_gpus():
        raise MissingDependencyError(f"{name} needs a GPU, and FAISS finds none: check nvidia-smi.")
    return faiss
