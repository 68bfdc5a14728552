"""A single process of a job of several, and the forms that are refused.

The exchanges themselves run between real processes in `tests/programs/test_distributed.py`.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import processes
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed


@settings(deadline=None)
@given(n=st.integers(0, 10**12), count=st.integers(1, 100))
def test_shares_are_the_whole_in_order_and_even(n, count):
    parts = [processes.share_of(n, index, count) for index in range(count)]
    assert (parts[0].start, parts[-1].stop) == (0, n)
    assert all(one.stop == other.start for one, other in itertools.pairwise(parts))
    sizes = {part.stop - part.start for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_alone_nothing_is_exchanged():
    rows = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert processes.gather_rows(rows) is rows
    assert processes.share([1, 2]) == [1, 2]
    assert distributed.gather({"a": 1}) == [{"a": 1}]
    assert distributed.is_writer()
    distributed.check_same("anything", object())


@pytest.mark.parametrize(
    "where", ["localhost", "localhost:1", "localhost:1,0", "localhost:1,a,2", "h:1,3,3", "h:1,0,2,3"]
)
def test_other_forms_of_the_flag_are_refused(where):
    with pytest.raises(InputError, match=r"expected ADDRESS:PORT,INDEX,COUNT"):
        processes.start(where)
