"""A whitening for FAISS: the linear transform alone, and an empty index that whitens the vectors added to it."""

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
    `IndexFlatIP`. It takes raw vectors as documents and queries; scores are cosines of whitened vectors.

    Args:
      folder: New, empty, or made by jaxwhiten, in which case it is replaced as a whole. It is returned.
      whitening: A fitted whitening.

    Raises:
      NotFittedError: The whitening is not fitted.
      MissingDependencyError: FAISS is not installed.
    """
    faiss, folder = import_faiss("Exporting to FAISS"), Path(folder)
    affine = Affine.of_kernel(*whitening.kernel, unit_length=True)
    chain = transforms(affine)
    flat = faiss.IndexFlatIP(affine.outputs)
    index = behind(chain, flat)
    with io.whole_folder(folder, RuntimeError, kind="faiss") as whole:
        faiss.write_VectorTransform(chain[0], str(whole / TRANSFORM))
        faiss.write_index(index, str(whole / INDEX))
    return folder
