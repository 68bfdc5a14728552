"""`Encoder.encode(..., precision=)`: vectors as sentence-transformers' bytes, or as the bytes of a fitted code."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxwhiten.codes import Code, make_code
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.head import Truncate

FLOAT = "float32"
PRECISIONS = (FLOAT, "int8", "uint8", "binary", "ubinary")


def encode_at(encoder: Any, sentences: list[str], precision: str | Code, pooling: str, **how: Any) -> np.ndarray:
    """`Encoder.encode` for one pooling, at a precision."""
    floats = encoder.with_pooling(pooling).without_code()
    if isinstance(precision, str) and precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if precision == FLOAT:
        return floats.encode(sentences, **how)
    if isinstance(precision, str) and precision.endswith("int8"):
        if len(sentences) < 2:
            raise InputError(
                f"precision={precision!r} needs at least two sentences for calibration: pass more, or a fitted code,"
                f" such as precision=make_code({precision!r}).fit(vectors)."
            )
        vectors = floats.encode(sentences, **how)
        code = make_code(precision).fit(vectors)
        return code.encode(vectors).view(code.dtype)
    if isinstance(precision, str):  # signs do not depend on the length of a vector
        width = how.pop("truncate_dim", None)
        how["normalize_embeddings"] = False
        floats = floats if width is None else floats.then(Truncate(width))
    code = precision if isinstance(precision, Code) else make_code(precision).fit(np.zeros((1, floats.dimension)))
    return floats.with_code(code).encode(sentences, **how).view(code.dtype)
