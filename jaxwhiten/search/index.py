"""What every index is: built from vectors, searched, saved to a folder and loaded, and aware of how it was made.

A saved index is a folder: `header.json`, the vectors in the backend's own form, and the texts if there are any. The
header names each file with its size and SHA-256; it is replaced last, so that it always points to whole files.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from jaxwhiten._version import __version__
from jaxwhiten.codes import CODES, Code, Quantiser
from jaxwhiten.errors import FormatError, InputError, MismatchError, OutputError, spelled, unknown_name
from jaxwhiten.io import FORMAT_VERSION, from_json, load_tensors, remove_stale, seal, sha256_file, write_json
from jaxwhiten.search import faiss, jax_flat  # noqa: F401 (backends, which add themselves to BACKENDS)
from jaxwhiten.search.backend import BACKENDS, Backend
from jaxwhiten.search.coding import AUTO, choose
from jaxwhiten.search.header import HEADER, KIND, LEFTOVER, About, File, read_documents, read_header, verified
from jaxwhiten.search.prepare import check_vectors, preparation
from jaxwhiten.search.rescore import WIDER, Rescoring
from jaxwhiten.whitening import Whitening, check_provenance
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import check_integer

_DOCUMENTS, _FITTED = "documents.jsonl", "fitted.safetensors"
# What decides whether two vectors can be compared. The model's name and dtype only say how to make more of them.
ENCODING_KEYS = ("fingerprint", "pooling", "max_length")


@dataclass(kw_only=True, eq=False, repr=False)
class Index(About):
    """An index over document vectors; ids are row numbers. `build_index` and `load_index` make it."""

    store: Backend  # with the vectors
    documents: Sequence[str] | None = None  # the texts by id
    fitted: Whitening | Code | None = None  # what the codes follow from
    rescoring: Rescoring | None = None  # the copy that candidates are scored again by

    @property
    def prepare(self) -> Affine:
        """What is done to a raw vector before it is stored or searched for."""
        return self.store.prepare

    def add(self, vectors: Shaped[np.ndarray, "n d"], *, documents: Sequence[str] | None = None) -> None:
        """Adds raw vectors, encoded as the others (`check_encoding`), at the end, with texts if the index keeps texts.

        What was fitted or trained stays as it is. `save` writes the index anew.
        """
        vectors = check_vectors("document vectors", vectors, self.input_dimension)
        if (documents is None) != (self.documents is None):
            keeps = "no texts" if documents is not None else "texts"
            raise InputError(f"The index keeps {keeps}: add documents accordingly.")
        _check_documents(documents, vectors)
        self.store.add(vectors)
        self.size += len(vectors)
        if self.rescoring is not None:
            self.rescoring.add(vectors)
        if self.documents is not None and documents is not None:
            self.documents = [*self.documents, *documents]

    def remove(self, ids: Sequence[int] | Int64[np.ndarray, " n"]) -> None:
        """Removes documents; those behind them move up, so that ids stay row numbers. `save` writes the index anew.

        `ids` are row numbers before the removal, in any order; one document at least must stay.
        """
        if not self.store.removes:
            able = ", ".join(name for name, backend in BACKENDS.items() if backend.removes)
            raise InputError(f"{self.backend} cannot remove documents; these backends can: {able}.")
        gone = np.unique(np.asarray(ids, np.int64).reshape(-1))
        if len(gone) and not 0 <= gone[0] <= gone[-1] < self.size:
            raise InputError(f"No document {gone[0] if gone[0] < 0 else gone[-1]}; the index holds {self.size}.")
        if len(gone) == self.size:
            raise InputError("This would remove every document; an index holds at least one.")
        if not len(gone):
            return
        keep = np.delete(np.arange(self.size), gone)
        self.store.remove(gone, keep)
        self.size = len(keep)
        if self.rescoring is not None:
            self.rescoring.remove(keep)
        if self.documents is not None:
            self.documents = [self.documents[i] for i in keep.tolist()]

    def search(
        self, queries: Shaped[np.ndarray, "q d"], k: int, *, prepared: bool = False
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k best documents of each query.

        Args:
          queries: Raw vectors, encoded as the documents (`check_encoding`); the index whitens and normalises them.
          k: How many documents, in 1..size.
          prepared: The queries are already whitened and normalised (`prepare`), as in the paper's timing. Their
            candidates are not scored again.

        Returns:
          Scores, best first, and ids. Where an approximate index found fewer than k: score −inf and id −1.
        """
        self.check_k(k)
        queries = check_vectors("query vectors", queries, self.dimension if prepared else self.input_dimension)
        queries = np.ascontiguousarray(queries, np.float32)
        if self.rescoring is None or prepared:
            scores, ids = self.store.search(queries, int(k), prepared)
        else:
            wide = min(self.size, WIDER * int(k))
            scores, ids = self.rescoring.best(queries, self.store.search(queries, wide, False)[1], int(k))
        if (missing := ids < 0).any():
            scores[missing] = -np.inf
        return scores, ids

    def check_encoding(self, encoding: Mapping[str, Any]) -> None:
        """Raises `MismatchError` unless queries encoded this way can be compared with the documents."""
        if self.encoding is None:
            raise MismatchError(
                "The index does not say how its documents were encoded, so these queries cannot be checked against it."
                " Build it with encoding=encoder.encoding()."
            )
        different = [
            f"{key} is {self.encoding.get(key)!r} in the index and {encoding.get(key)!r} here"
            for key in ENCODING_KEYS
            if self.encoding.get(key) != encoding.get(key)
        ]
        if different:
            raise MismatchError(
                f"The documents of the index were encoded in another way: {'; '.join(different)}. Encode as the index"
                f" says (model {self.encoding.get('model')!r}), or build the index again."
            )

    def check_k(self, k: Any) -> None:
        """Raises `InputError` unless k is an integer in 1..size."""
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
        return self.store.nbytes + (0 if self.rescoring is None else self.rescoring.rows.nbytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as a folder; an index already there is replaced, and stays whole until it is.

        Raises:
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
            header = {"kind": KIND, "format_version": FORMAT_VERSION, "jaxwhiten_version": __version__}
            header |= {field.name: getattr(self, field.name) for field in dataclasses.fields(About)}
            header |= {"normalize": self.prepare.unit_length, "files": files}
            write_json(folder / HEADER, seal(json.loads(json.dumps(header))))
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

    def _write_files(self, folder: Path) -> dict[str, File]:
        """Writes everything but the header into an empty folder; says under which names the index shall hold it."""
        self.store.write(folder)
        if self.rescoring is not None:
            self.rescoring.write(folder)
        if self.fitted is not None:
            self.fitted.save(folder / _FITTED)
        if self.documents is not None:
            with open(folder / _DOCUMENTS, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in self.documents)
        files: dict[str, File] = {}
        for path in sorted(folder.iterdir()):
            digest = sha256_file(path)
            name = f"{path.stem}-{digest[:12]}{path.suffix}"
            files[path.name] = {"name": name, "bytes": path.stat().st_size, "sha256": digest}
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        return files


def build_index(
    vectors: Shaped[np.ndarray, "n d"],
    backend: str = "faiss-flat",
    *,
    whitening: Any | None = None,
    normalize: bool = True,
    encoding: Mapping[str, Any] | None = None,
    documents: Sequence[str] | None = None,
    codes: str | Code | Quantiser | None = None,
    bytes: int | None = None,
    rescore: str | None = None,
    **options: Any,
) -> Index:
    """Builds an index of the named backend.

    Args:
      vectors: Raw document vectors; a memory map is read block by block. Codes are decoded; queries
        are then the vectors of `Encoder.without_code`.
      backend: A name of `BACKENDS`.
      whitening: A fitted `Whitening` to put inside the index, or None.
      normalize: Whether vectors are scaled to unit length, so that scores are cosines.
      encoding: How the vectors were encoded (`Encoder.encoding`); queries that say otherwise are refused.
      documents: The texts, one per vector.
      codes: Keeps the documents in codes: a name of `jaxwhiten.codes.CODES`; `"pq"`, which FAISS trains; `"auto"` for
        the best of this kind of vectors; a fitted code of raw vectors, or the quantiser of one. None for float32.
      bytes: Per document; without `codes` it stands for `codes="auto"`.
      rescore: Keeps a copy of the vectors in `"float16"` or `"int8"`, by which four candidates for each result are
        scored again. Once loaded, the copy is a memory map.
      **options: The backend's options, such as `nlist` and `nprobe` of `faiss-ivf`.

    Raises:
      MissingDependencyError: The backend's package or device is missing.
    """
    start = time.perf_counter()
    if backend not in BACKENDS:
        raise unknown_name("search backend", backend, BACKENDS)
    kind = BACKENDS[backend]
    known = [field.name for field in dataclasses.fields(kind.Options)]
    for name in options:
        if not known:
            raise InputError(f"The backend {backend} has no options, so not {name!r} either.")
        if name not in known:
            raise unknown_name(f"option of {backend}", name, known)
    vectors = check_vectors("document vectors", vectors)
    _check_documents(documents, vectors)
    prepare = preparation(whitening, vectors.shape[1], normalize)
    rescoring = None if rescore is None else Rescoring.of(rescore, vectors, prepare)
    coding = None
    if codes is not None or bytes is not None or kind.halves:
        if not kind.codes:
            able = ", ".join(name for name, other in BACKENDS.items() if other.codes)
            raise InputError(f"{backend} keeps no codes; these backends do: {able}.")
        if not normalize:
            raise InputError("Codes are of vectors of unit length: leave normalize=True.")
        if bytes is not None:
            check_integer("bytes", bytes, least=1)
        codes = AUTO if codes is None else codes
        coding = choose(codes, bytes, vectors, whitening, trains=kind.trains, halves=kind.halves)
        prepare = coding.prepare
    inside = None
    source = codes if isinstance(codes, Code) else whitening
    if source is not None:
        provenance = dict(getattr(source, "provenance", None) or {})
        check_provenance("The code" if source is codes else "The whitening", provenance, encoding or {})
        inside = {"hash": prepare.hash(), "k": prepare.outputs, "provenance": provenance}
    store = kind.build(vectors, kind.Options(**options), prepare, coding)
    return Index(
        backend=backend,
        options=dataclasses.asdict(store.options),
        size=len(vectors),
        input_dimension=vectors.shape[1],
        dimension=prepare.outputs,
        encoding=dict(encoding) if encoding is not None else None,
        whitening=inside,
        codes=None if coding is None else {"name": coding.name, "bytes": coding.bytes},
        rescore=rescore,
        notes=[*(() if coding is None else coding.notes), *store.notes],
        build_seconds=time.perf_counter() - start,
        store=store,
        documents=documents,
        fitted=None if coding is None else coding.fitted,
        rescoring=rescoring,
    )


def load_index(path: str | os.PathLike[str]) -> Index:
    """Loads an index folder of any backend.

    Every file is verified against the header before a backend reads it, so that damage is reported and does not crash.
    That is no protection against a stranger who writes header and files: FAISS does not claim that its reader is safe
    on hostile files, so load only folders whose origin you trust.

    Raises:
      FormatError: Missing, damaged, of another kind or from a newer version.
      MissingDependencyError: The backend's package or device is missing.
    """
    folder, header = Path(path), read_header(path)
    if header.backend not in BACKENDS:
        raise FormatError(
            f"{path}: a {header.backend!r} index, which this jaxwhiten does not know: upgrade, or rebuild it."
        )
    kind = BACKENDS[header.backend]
    options = from_json(kind.Options, header.options, f"{folder / HEADER}: options", "Build the index again.")
    files = {name: verified(folder, entry) for name, entry in header.files.items()}
    documents = read_documents(files[_DOCUMENTS], header.size) if _DOCUMENTS in files else None
    fitted = rescoring = None
    if _FITTED in files:
        tensors, about = load_tensors(files[_FITTED], kind=(Whitening.name, *CODES))
        fitted = CODES.get(about["kind"], Whitening).from_tensors(files[_FITTED], tensors, about)
    try:
        if header.rescore is not None:
            rescoring = Rescoring.read(files, header)
        store = kind.read(files, options, header)
    except (KeyError, OSError, EOFError, ValueError, TypeError, RuntimeError) as error:
        raise FormatError(f"{folder}: the index cannot be read ({error}). Build it again.") from error
    if header.whitening is not None and store.prepare.hash() != header.whitening.get("hash"):
        raise FormatError(f"{folder}: the whitening inside the index is not the one its header names.")
    told = {field.name: getattr(header, field.name) for field in dataclasses.fields(About)}
    return Index(**told, store=store, documents=documents, fitted=fitted, rescoring=rescoring)


def _check_documents(documents: Sequence[str] | None, vectors: np.ndarray) -> None:
    if documents is not None and len(documents) != len(vectors):
        raise InputError(f"{len(documents)} documents but {len(vectors)} document vectors.")
