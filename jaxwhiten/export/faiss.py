"""A whitening as FAISS reads it: the linear transform alone, and an empty index that whitens what it is given."""

from __future__ import annotations

from pathlib import Path

from jaxwhiten import io
from jaxwhiten.codes.product import behind, import_faiss, transforms
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import Affine

TRANSFORM, INDEX = "whitening.vt", "index.faiss"


def save_faiss(folder: str | Path, whitening: Whitening) -> Path:
    """Writes a whitening for FAISS.

    `whitening.vt` is a `LinearTransform`: `faiss.read_VectorTransform(file).apply(x)` is `whitening.transform(x)`.
    `index.faiss` is an empty `IndexPreTransform`: `LinearTransform`, then `NormalizationTransform`, then
    `IndexFlatIP`. Raw vectors are added to it and searched for, and scores are cosines of whitened vectors.

    Args:
      folder: Made if missing; files of the same names are replaced.
      whitening: A fitted whitening.

    Returns:
      The folder.

    Raises:
      NotFittedError: Nothing was fitted yet.
      MissingDependencyError: FAISS is not installed.
    """
    faiss, folder = import_faiss("Exporting to FAISS"), Path(folder)
    affine = Affine.of_kernel(*whitening.kernel, unit_length=True)
    chain = transforms(affine)
    flat = faiss.IndexFlatIP(affine.outputs)
    index = behind(chain, flat)
    with io.atomic_path(folder / TRANSFORM) as temporary:
        faiss.write_VectorTransform(chain[0], str(temporary))
    with io.atomic_path(folder / INDEX) as temporary:
        faiss.write_index(index, str(temporary))
    return folder
