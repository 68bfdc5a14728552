"""Codes as a compression method of BitBudget, whose protocol compares methods at their bytes.

    import bitbudget
    from jaxwhiten.export import Compressor

    bitbudget.method("spectrum-96")(Compressor(96))  # then `bitbudget run --methods spectrum-96 ...`

https://github.com/sjmoran/bitbudget
"""

from __future__ import annotations

import numpy as np

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.shapes import Float, Float32


class Compressor:
    """A code of some bytes that is fitted on the documents of each search.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> scores, bytes = Compressor(4)(rows, rows[:2])
    >>> scores.shape, bytes
    ((2, 400), 4)
    """

    def __init__(self, bytes: int) -> None:
        self.bytes = bytes

    def __call__(
        self, documents: Float[np.ndarray, "n d"], queries: Float[np.ndarray, "q d"]
    ) -> tuple[Float32[np.ndarray, "q n"], int]:
        """The cosines of queries with the vectors that the documents' codes represent, and the bytes of a code."""
        unit = normalize(documents)
        code = SpectrumCode(bytes=self.bytes).fit(unit)
        return code.scores(queries, code.encode(unit)), code.nbytes
