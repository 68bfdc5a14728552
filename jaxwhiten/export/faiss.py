"""A whitening for FAISS: its transforms alone, and an empty index that whitens the vectors added to it."""

from __future__ import annotations

from pathlib import Path

from jaxwhiten import io
from jaxwhiten.codes.product import behind, import_faiss, transforms
from jaxwhiten.whitening import Whitening

CENTERING, LINEAR, INDEX = "centering.vt", "linear.vt", "index.faiss"


def save_faiss(folder: str | Path, whitening: Whitening) -> Path:
    """Writes a whitening for FAISS.

    `centering.vt` subtracts the mean, so that no digits are lost (there is none for β = 0), and `linear.vt` is a
    `LinearTransform`: `faiss.read_VectorTransform(file).apply(x)`, one file after the other, is
    `whitening.transform(x)`. `index.faiss` is an empty `IndexPreTransform` of both, `NormalizationTransform` and
    `IndexFlatIP`. It takes raw vectors as documents and queries; scores are cosines of whitened vectors.

    The folder is new, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.

    Raises:
      NotFittedError: The whitening is not fitted.
      MissingDependencyError: FAISS is not installed.
    """
    faiss, folder = import_faiss("Exporting to FAISS"), Path(folder)
    affine = whitening.affine.in_float32(unit_length=True)
    chain = transforms(affine)
    flat = faiss.IndexFlatIP(affine.outputs)
    index = behind(chain, flat)
    with io.whole_folder(folder, RuntimeError, kind="faiss") as whole:
        for transform, name in zip(chain[-2::-1], (LINEAR, CENTERING), strict=False):
            faiss.write_VectorTransform(transform, str(whole / name))
        faiss.write_index(index, str(whole / INDEX))
    return folder
