"""Rows of numbers are taken in every container, with one answer, by every door; what are no such rows is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Moments, Whitening, build_index, normalize
from jaxwhiten.arrays import as_floats
from jaxwhiten.codes import make_code
from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.metrics import similarity

N, D = 120, 8
# Multiples of 1/8 from -2 to 2, which every dtype of floats holds.
EIGHTHS = np.random.default_rng(0).integers(-16, 17, (N, D))
EIGHTHS[:, 0] = np.where(EIGHTHS.any(axis=1), EIGHTHS[:, 0], 1)
ROWS = (EIGHTHS / 8).astype(np.float32)
OTHERS = np.random.default_rng(1).normal(size=(N, D)).astype(np.float32)
FITTED = Whitening().fit(OTHERS)
SPECTRUM = make_code("spectrum", bytes=4).fit(OTHERS)
INT8 = make_code("int8").fit(OTHERS)


def changed(value, row=3):
    rows = ROWS.copy()
    rows[row] = value
    return rows


def added(rows):
    index = build_index(OTHERS, "jax")
    index.add(rows)
    return index.search(OTHERS, 5)[1]


# What each door makes of rows.
DOORS = {
    "Moments.update": lambda x: Moments().update(x).M2,
    "Whitening.fit": lambda x: Whitening().fit(x).mean_,
    "Whitening.transform": FITTED.transform,
    "SpectrumCode.fit": lambda x: make_code("spectrum", bytes=2).fit(x).axes.mean_,
    "SpectrumCode.encode": lambda x: np.asarray(SPECTRUM.encode(x)),
    "int8.encode": lambda x: np.asarray(INT8.encode(x)),
    "normalize": normalize,
    "build_index": lambda x: build_index(x, "jax").search(OTHERS, 5)[1],
    "Index.add": added,
    "Index.search": lambda x: build_index(OTHERS).search(x, 5)[1],
    "similarity": lambda x: similarity(x, OTHERS),
    "Code.scores": lambda x: SPECTRUM.scores(x, SPECTRUM.encode(OTHERS)),
}


def torch_of(dtype):
    torch = pytest.importorskip("torch")
    return torch.tensor(ROWS, dtype=getattr(torch, dtype), requires_grad=True)


def arrow():
    import pyarrow as pa

    return pa.array(ROWS.tolist(), pa.list_(pa.float32(), D))


def mapped(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def bfloat16():
    import ml_dtypes

    return ROWS.astype(ml_dtypes.bfloat16)


def pandas():
    pd = pytest.importorskip("pandas")

    return pd.Series(list(ROWS))


CONTAINERS = {
    "list": lambda _: ROWS.tolist(),
    "tuple": lambda _: tuple(map(tuple, ROWS.tolist())),
    "list of arrays": lambda _: list(ROWS),
    "float64": lambda _: ROWS.astype(np.float64),
    "float16": lambda _: ROWS.astype(np.float16),
    "bfloat16": lambda _: bfloat16(),
    "big-endian": lambda _: ROWS.astype(">f4"),
    "columns in memory": lambda _: np.asfortranarray(ROWS),
    "every other row": lambda _: np.repeat(ROWS, 2, axis=0)[::2],
    "JAX": lambda _: jnp.asarray(ROWS),
    "JAX in bfloat16": lambda _: jnp.asarray(ROWS, "bfloat16"),
    "torch": lambda _: torch_of("float32"),
    "torch in bfloat16": lambda _: torch_of("bfloat16"),
    "unmasked": lambda _: np.ma.array(ROWS),
    "Arrow": lambda _: arrow(),
    "pandas": lambda _: pandas(),
    "memory map": mapped,
    "objects": lambda _: ROWS.astype(object),
}


class Missing:
    """As pandas' NA: no number, and neither equal nor unequal to anything."""

    def __repr__(self):
        return "<NA>"

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


class LazyFrame:
    """As that of polars."""

    def collect(self):
        raise AssertionError

    collect_schema = collect


DAYS = np.array([["2020-01-01", "2020-01-02"]], "M8[D]")


REFUSED = {
    "NaN": (changed(np.nan), NonFiniteError, "Row 3 of the .*contains NaN or inf: remove or repair it"),
    "inf": (changed(np.inf), NonFiniteError, "Row 3 of the .*contains NaN or inf: remove or repair it"),
    "NaN in a list": (changed(np.nan).tolist(), NonFiniteError, "Row 3 of the .*contains NaN or inf"),
    "masked": (np.ma.array(ROWS, mask=ROWS > 1), InputError, "masked entries"),
    "bytes": (ROWS.astype(np.uint8), InputError, "without their code"),
    "complex": (ROWS.astype(complex), InputError, "[Cc]omplex"),
    "missing": (np.array([[1.0], [Missing()]], object), NonFiniteError, "Row 1 contains the missing value <NA>"),
    "dates": (DAYS, InputError, r"got dates or times \(datetime64"),
    "times": (DAYS - DAYS[0], InputError, r"got dates or times \(timedelta64"),
    "a date": (np.array([[1.0, DAYS[0, 0].item()]], object), InputError, "got the date .* in row 0: convert or drop"),
    "not computed": (LazyFrame(), InputError, r"got a LazyFrame.*collect\(\)"),
    "text": ([["a"] * D], InputError, "[Ee]xpected .*got"),
    "ragged": ([[1.0] * D, [1.0]], InputError, "all of one length"),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_holds_the_same_rows(container, tmp_path):
    np.testing.assert_array_equal(as_floats(CONTAINERS[container](tmp_path)), ROWS)


@pytest.mark.parametrize("case", REFUSED)
def test_what_are_no_rows_is_refused(case):
    rows, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        Moments().update(rows)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_and_refuses_rows_so(door):
    answer = DOORS[door](ROWS)
    for rows in (ROWS.tolist(), jnp.asarray(ROWS)):
        found = DOORS[door](rows)
        # Codes and rows of an index may differ where a number lies on a boundary.
        np.testing.assert_allclose(found, answer, atol=0 if found.dtype.kind in "iub" else 1e-4)
    for case in ("NaN in a list", "masked"):
        rows, kind, message = REFUSED[case]
        with pytest.raises(kind, match=message):
            DOORS[door](rows)
    if door not in ("normalize", "similarity"):  # of one vector
        with pytest.raises(InputError, match="1D array"):
            DOORS[door](ROWS[0])
