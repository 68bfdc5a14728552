"""Files whose checksum is right and whose numbers cannot be: refused by every reader of fitted values."""

import numpy as np
import pytest

from jaxwhiten import Moments, SpectrumCode, Whitening, io, load_code
from jaxwhiten.errors import FormatError

ROWS = (np.random.default_rng(0).normal(size=(1000, 8)) * np.arange(1, 9) ** -0.6).astype(np.float32)
KINDS = {
    "moments": (Moments().update(ROWS), Moments.load),
    "whitening": (Whitening().fit(ROWS), Whitening.load),
    "spectrum": (SpectrumCode(bytes=2).fit(ROWS), load_code),
}


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


# The array, or the fact, that is changed or removed.
FAULTS = {
    "moments": [
        *(("mean", put(0, np.nan)), ("mean", lambda x: x[:-1])),
        *(("M2", put((0, 1), 7.0)), ("M2", put((1, 1), -1.0)), ("M2", lambda x: x[..., None]), ("M2", np.float32)),
        *(("M2", None), ("n", put(0, -5)), ("n", put(0, 0)), ("n", lambda x: np.repeat(x, 2)), ("eps", put(0, 1.0))),
    ],
    "whitening": [
        *(("mean", put(0, np.inf)), ("mean", lambda x: x[:-1]), ("n", put(0, 0))),
        *(("components", put((0, 0), 5.0)), ("components", lambda x: x[:, :2]), ("components", None)),
        *(("eigenvalues", put(0, 0.0)), ("eigenvalues", put(-1, -1.0)), ("eigenvalues", np.float32)),
        *(("params", None), ("params", lambda params: params | {"speed": 9})),
    ],
    "spectrum": [
        *(("mean", lambda x: x[:-1]), ("spread", np.zeros_like), ("lost", lambda x: x + 1)),
        *(("lost", lambda x: np.zeros(2)), ("group", lambda x: x[:3]), ("group", np.zeros_like)),
        *(("group", lambda x: x + 1), ("group", np.float32)),
        *(("centroids", lambda x: x[:, :8]), ("centroids", np.float64), ("centroids", None)),
    ],
}


@pytest.mark.parametrize(("kind", "name", "change"), [(kind, *fault) for kind in FAULTS for fault in FAULTS[kind]])
def test_impossible_values_are_refused(tmp_path, kind, name, change):
    fitted, load = KINDS[kind]
    fitted.save(tmp_path / "file")
    tensors, header = io.load_tensors(tmp_path / "file", kind=kind)
    tensors = {key: np.array(value) for key, value in tensors.items()}
    header = {"provenance": header["provenance"]}
    io.save_tensors(tmp_path / "file", tensors, kind=kind, header=header)
    load(tmp_path / "file")
    values = tensors if name in tensors else header["provenance"]
    before = values.pop(name)
    if change is not None:
        values[name] = change(before)
    tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
    io.save_tensors(tmp_path / "file", tensors, kind=kind, header=header)
    with pytest.raises(FormatError, match=r"not a valid|damaged: "):
        load(tmp_path / "file")
