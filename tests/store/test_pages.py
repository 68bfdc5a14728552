"""Arrays in pages are the arrays that were written and appended; a page that was damaged is named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxwhiten.errors import FormatError
from jaxwhiten.store import SCHEMA, Pages, SQLite, appended, pages

DTYPES = st.sampled_from(["<f4", "<f2", "|u1", "<i8", ">i4", "|b1", "<u4"])
SOME = settings(max_examples=60)
WIDTHS = hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)


@pytest.fixture(autouse=True, scope="module")
def small_pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_BYTES", 24)
        yield


def database():
    found = SQLite(None, kind=1)
    found.change(lambda connection: [connection.execute(statement) for statement in SCHEMA])
    return found


def written(parts, name="x"):
    """A database with an array, whose first part was written and the others appended."""
    found = database()
    found.change(lambda connection: Pages(connection, name).write(parts[0]))
    for part in parts[1:]:
        found.change(lambda connection, part=part: Pages(connection, name).append(part))
    return found


def read(found, first=0, name="x"):
    return found.reading(lambda connection: Pages(connection, name).read(first))


def whole(parts):
    return np.concatenate(parts, dtype=parts[0].dtype)  # in its order of bytes


@st.composite
def arrays(draw, most=20):
    """An array in parts."""
    dtype, width = draw(DTYPES), draw(WIDTHS)
    array = draw(hnp.arrays(dtype, (draw(st.integers(0, most)), *width)))
    ends = sorted(draw(st.lists(st.integers(0, len(array)), max_size=5)))
    return np.split(array, ends)


@SOME
@given(parts=arrays(), data=st.data())
def test_arrays_appended_in_any_parts_are_read_from_any_row(parts, data):
    expected, found = whole(parts), written(parts)
    for first in {0, len(expected), data.draw(st.integers(0, len(expected)))}:
        rows = read(found, first)
        assert (rows.dtype, rows.shape) == (expected.dtype, expected[first:].shape)
        assert rows.tobytes() == expected[first:].tobytes()
    assert found.reading(lambda connection: len(Pages(connection, "x"))) == len(expected)


@SOME
@given(old=arrays(), new=arrays())
def test_a_written_array_replaces_the_old_one_alone(old, new):
    found = written(old)
    found.change(lambda connection: Pages(connection, "y").write(old[0]))
    found.change(lambda connection: Pages(connection, "x").write(whole(new)))
    assert read(found).tobytes() == whole(new).tobytes()
    assert read(found, name="y").tobytes() == old[0].tobytes()


def test_appended_rows_get_the_type_of_the_array():
    found = written([np.zeros((3, 2), np.float32), np.ones((2, 2)), np.full((1, 2), 2, np.uint8)])
    rows = read(found)
    assert (rows.dtype, rows[:, 0].tolist()) == (np.float32, [0, 0, 0, 1, 1, 2])


@SOME
@given(data=st.data())
def test_a_changed_page_is_named(data):
    parts = data.draw(arrays().filter(lambda parts: sum(map(len, parts)) > 0))
    found = written(parts)
    stored = found.rows("SELECT number, data FROM pages ORDER BY number")
    number, page = data.draw(st.sampled_from(stored))
    place = data.draw(st.integers(0, len(page) - 1))
    other = data.draw(
        st.sampled_from(
            [
                page[:place] + bytes([page[place] ^ 1 << data.draw(st.integers(0, 7))]) + page[place + 1 :],
                page[:place],
                page + page,
                None,
            ]
        )
    )
    change = "DELETE FROM pages" if other is None else "UPDATE pages SET data = :other"
    found.change(lambda c: c.execute(f"{change} WHERE number = :number", {"other": other, "number": number}))
    with pytest.raises(FormatError, match=f"page {number} of x is missing, or was damaged"):
        read(found)
    each = len(stored[0][1]) // parts[0][:1].nbytes if len(parts[0]) else None
    if each and other is not None and number + 1 < len(stored):  # pages behind it are read
        first = (number + 1) * each
        assert read(found, first).tobytes() == whole(parts)[first:].tobytes()


@SOME
@given(parts=arrays(), spare=st.booleans())
def test_rows_behind_an_array_do_not_change_those_of_others(parts, spare):
    """Of two arrays that grow from the same rows, each has its own."""
    expected = whole(parts)
    array = read(written(parts[:1])) if spare else parts[0].copy()
    for part in parts[1:]:
        before = array.copy()
        grown = appended(array, part)
        assert array.tobytes() == before.tobytes()
        array = grown
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert array.tobytes() == expected.tobytes()
