"""What every index is: built from vectors, searched, saved to a folder and loaded, and aware of how it was made.

A saved index is a folder: `header.json`, the vectors in the backend's own form, and the texts if there are any. The
header names each file with its size and SHA-256; it is replaced last, so that it always points to whole files.
"""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, Int64

from jaxwhiten._version import __version__
from jaxwhiten.codes import Code
from jaxwhiten.errors import InputError, MismatchError, OutputError, spelled
from jaxwhiten.io import FORMAT_VERSION, remove_stale, seal, sha256_file, write_json
from jaxwhiten.search.coding import Coding
from jaxwhiten.search.header import ATTRIBUTES, DOCUMENTS, FITTED, HEADER, KIND, LEFTOVER
from jaxwhiten.search.prepare import check_vectors
from jaxwhiten.search.rescore import WIDER, Rescoring
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import Affine

# What decides whether two vectors can be compared. The model's name and dtype only say how to make more of them.
ENCODING_KEYS = ("fingerprint", "pooling", "max_length")


class Index(ABC):
    """An index over document vectors; ids are row numbers.

    Attributes:
      backend: The name it was built under.
      options: The backend's options, as they were used.
      size: Number of documents.
      input_dimension: Dimension of a raw vector.
      dimension: Dimension of a stored vector.
      prepare: What is done to a raw vector before it is stored or searched for.
      encoding: How the documents were encoded (`Encoder.encoding`), or None if nobody said.
      whitening: Hash, dimension and provenance of the whitening inside the index, or None.
      codes: Name and bytes of the code that the documents are kept in, or None for float32.
      fitted: The whitening or code that the codes follow from, or None.
      rescore: What the candidates of a search are scored by again: "float16", "int8" or None.
      notes: What the user should know: an option lowered, a sample taken.
      documents: The texts by id, or None.
      build_seconds: How long building took.
    """

    default_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    coded: ClassVar[tuple[str, ...]] = ()  # backends that can keep codes
    trains: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # the codes that a backend can train
    halves: ClassVar[tuple[str, ...]] = ()  # backends that keep nothing but codes, and scan halves of bytes
    removes: ClassVar[tuple[str, ...]] = ()  # backends that can remove documents

    backend: str
    options: dict[str, Any]
    size: int
    input_dimension: int
    dimension: int
    prepare: Affine
    encoding: dict[str, Any] | None = None
    whitening: dict[str, Any] | None = None
    codes: dict[str, Any] | None = None
    fitted: Whitening | Code | None = None
    rescore: str | None = None
    notes: list[str]
    documents: Sequence[str] | None = None
    build_seconds: float
    _coding: Coding | None = None
    _rescoring: Rescoring | None = None

    def add(
        self,
        vectors: Float[np.ndarray, "n d"],
        *,
        documents: Sequence[str] | None = None,
        encoding: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds documents at the end; what was fitted or trained stays as it is. `save` writes the index anew.

        Args:
          vectors: Raw document vectors.
          documents: Their texts, if the index keeps texts.
          encoding: How they were encoded; checked against the index. None: not checked.

        Raises:
          InputError: A zero vector, another dimension, or texts where the index keeps none, or the reverse.
          NonFiniteError: A NaN or an infinity.
          MismatchError: They were encoded in another way than the documents.
        """
        if encoding is not None:
            self.check_encoding(encoding)
        check_vectors("document vectors", vectors, self.input_dimension)
        if (documents is None) != (self.documents is None):
            raise InputError(
                f"The index keeps {'no ' if documents is not None else ''}texts: add documents accordingly."
            )
        if documents is not None and len(documents) != len(vectors):
            raise InputError(f"{len(documents)} documents but {len(vectors)} document vectors.")
        self._add(vectors)
        self.size += len(vectors)
        if self._rescoring is not None:
            self._rescoring.rows = np.concatenate([self._rescoring.rows, self._rescoring.kept(vectors)])
        if self.documents is not None and documents is not None:
            self.documents = [*self.documents, *documents]

    def remove(self, ids: Sequence[int] | Int64[np.ndarray, " n"]) -> None:
        """Removes documents; those behind them move up, so that ids stay row numbers. `save` writes the index anew.

        Args:
          ids: Row numbers before the removal, in any order.

        Raises:
          InputError: No such document, none left, or a backend that cannot remove.
        """
        if self.backend not in self.removes:
            raise InputError(f"{self.backend} cannot remove documents; of these backends some can: {self.removes}.")
        gone = np.unique(np.asarray(ids, np.int64).reshape(-1))
        if len(gone) and not 0 <= gone[0] <= gone[-1] < self.size:
            raise InputError(f"No document {gone[0] if gone[0] < 0 else gone[-1]}; the index holds {self.size}.")
        if len(gone) == self.size:
            raise InputError("This would remove every document; an index holds at least one.")
        if not len(gone):
            return
        keep = np.delete(np.arange(self.size), gone)
        self._remove(gone, keep)
        self.size = len(keep)
        if self._rescoring is not None:
            self._rescoring.rows = self._rescoring.rows[keep]
        if self.documents is not None:
            self.documents = [self.documents[i] for i in keep.tolist()]

    def search(
        self,
        queries: Float[np.ndarray, "q d"],
        k: int,
        *,
        encoding: Mapping[str, Any] | None = None,
        prepared: bool = False,
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k best documents of each query.

        Args:
          queries: Raw query vectors; the index whitens and normalises them itself.
          k: How many documents.
          encoding: How the queries were encoded; checked against the index. None: not checked.
          prepared: The queries are already whitened and normalised (`prepare`), as in the paper's timing. Their
            candidates are not scored again.

        Returns:
          Scores, best first, and ids. Where an approximate index found fewer than k: score −inf and id −1.

        Raises:
          InputError: k is not in 1..size, a zero vector, or another dimension.
          NonFiniteError: A NaN or an infinity.
          MismatchError: The queries were encoded in another way than the documents.
        """
        if encoding is not None:
            self.check_encoding(encoding)
        self._check_k(k)
        check_vectors("query vectors", queries, self.dimension if prepared else self.input_dimension)
        queries = np.ascontiguousarray(queries, np.float32)
        if self._rescoring is None or prepared:
            scores, ids = self._search(queries, int(k), prepared)
        else:
            wide = min(self.size, WIDER * int(k))
            scores, ids = self._rescoring.best(queries, self._search(queries, wide, False)[1], int(k))
        if (missing := ids < 0).any():
            scores[missing] = -np.inf
        return scores, ids

    def check_encoding(self, encoding: Mapping[str, Any]) -> None:
        """Raises `MismatchError` unless queries encoded this way can be compared with the documents."""
        if self.encoding is None:
            raise MismatchError(
                "The index does not say how its documents were encoded, so these queries cannot be checked against it."
                " Build it with encoding=encoder.encoding(), or search without encoding=."
            )
        different = [
            f"{key} is {self.encoding.get(key)!r} in the index and {encoding.get(key)!r} in the query"
            for key in ENCODING_KEYS
            if self.encoding.get(key) != encoding.get(key)
        ]
        if different:
            raise MismatchError(
                f"The query was encoded in another way than the documents: {'; '.join(different)}. Encode it as the"
                f" index says (model {self.encoding.get('model')!r}), or build the index again."
            )

    def _check_k(self, k: Any) -> None:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"{spelled('k')} must be a positive integer, not {k!r}.")
        if k > self.size:
            raise InputError(f"k = {k}, but the index holds {self.size} documents: ask for at most {self.size}.")

    @property
    def vector_gib(self) -> float:
        """Memory of the stored vectors in the paper's form: documents × bytes of a vector or code / 2³⁰."""
        return self.size * (4 * self.dimension if self.codes is None else self.codes["bytes"]) / 2**30

    @property
    def nbytes(self) -> int:
        """Serialised size of the index in bytes, without header, texts and fit; the copy to rescore by is counted."""
        return self._nbytes + (0 if self._rescoring is None else self._rescoring.nbytes)

    @property
    @abstractmethod
    def _nbytes(self) -> int: ...

    @abstractmethod
    def _build(self, vectors: np.ndarray) -> None: ...

    @abstractmethod
    def _add(self, vectors: np.ndarray) -> None:
        """Adds raw vectors, or raises and changes nothing; `size` is still the one before."""

    @abstractmethod
    def _remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        """Removes rows, both given in ascending order; `size` is still the one before."""

    @abstractmethod
    def _search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]: ...

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Writes the backend's files into an empty folder."""

    @abstractmethod
    def _read(self, files: Mapping[str, Path]) -> None:
        """Reads the backend's files, which were verified, by the names `_write` gave them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as a folder; an index already there is replaced, and stays whole until it is.

        Args:
          path: The folder.

        Raises:
          InputError: `path` is a file, or a folder that holds something other than an index.
          OutputError: The folder cannot be written to, or the disk is full; an index already there is intact.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: a file; an index is a folder.")
        found = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        if HEADER not in found and not all(map(LEFTOVER.fullmatch, found)):
            raise InputError(f"{folder}: not empty and not an index; nothing was written.")
        new: list[Path] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_stale(folder, ".writing.*")
            with tempfile.TemporaryDirectory(dir=folder, prefix=".writing.") as temporary:
                files = self._write_files(Path(temporary))
                for name, entry in files.items():
                    if not (folder / entry["name"]).exists():
                        new.append(folder / entry["name"])
                    os.replace(Path(temporary, name), folder / entry["name"])
            write_json(folder / HEADER, self._header(files))
        except (OSError, RuntimeError) as error:  # FAISS raises RuntimeError
            for path in new:
                path.unlink(missing_ok=True)
            if isinstance(error, OutputError):
                raise
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0][-200:]
            raise OutputError(
                f"{folder}: the index could not be written ({reason}); make room, or choose another place."
            ) from error
        keep = {HEADER, *(entry["name"] for entry in files.values())}
        for old in folder.iterdir():
            if old.is_file() and old.name not in keep and old.suffix in {Path(name).suffix for name in keep}:
                old.unlink(missing_ok=True)

    def _write_files(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Writes everything but the header into an empty folder; says under which names the index shall hold it."""
        self._write(folder)
        if self._rescoring is not None:
            self._rescoring.write(folder)
        if self.fitted is not None:
            self.fitted.save(folder / FITTED)
        if self.documents is not None:
            with open(folder / DOCUMENTS, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in self.documents)
        files = {}
        for path in sorted(folder.iterdir()):
            digest = sha256_file(path)
            name = f"{path.stem}-{digest[:12]}{path.suffix}"
            files[path.name] = {"name": name, "bytes": path.stat().st_size, "sha256": digest}
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        return files

    def _header(self, files: Mapping[str, Any]) -> dict[str, Any]:
        header = {"kind": KIND, "format_version": FORMAT_VERSION, "jaxwhiten_version": __version__}
        header |= {key: getattr(self, key) for key in ATTRIBUTES}
        header |= {"normalize": self.prepare.unit_length, "files": dict(files)}
        return seal(json.loads(json.dumps(header)))
