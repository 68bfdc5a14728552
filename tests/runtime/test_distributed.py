"""A single process of a job of several, the forms that are refused, and the fit of docs/explanations/devices.md.

The exchanges themselves run between real processes in `tests/programs/test_distributed.py`.
"""

import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten import Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed
from tests.conftest import ROOT


@settings(deadline=None)
@given(n=st.integers(0, 10**12), count=st.integers(1, 100))
def test_shares_are_the_whole_in_order_and_even(n, count):
    parts = [distributed.share_of(n, index, count) for index in range(count)]
    assert (parts[0].start, parts[-1].stop) == (0, n)
    assert all(one.stop == other.start for one, other in itertools.pairwise(parts))
    sizes = {part.stop - part.start for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_alone_nothing_is_exchanged():
    rows = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert distributed.gather_rows(rows) is rows
    assert distributed.share([1, 2]) == [1, 2]
    assert distributed.gather({"a": 1}) == [{"a": 1}]
    assert distributed.from_writer(2.5) == 2.5
    assert distributed.is_writer()
    distributed.check_same("anything", object())


@pytest.mark.parametrize(
    "where", ["localhost", "localhost:1", "localhost:1,0", "localhost:1,a,2", "h:1,3,3", "h:1,0,2,3"]
)
def test_other_forms_of_the_flag_are_refused(where):
    with pytest.raises(InputError, match=r"expected ADDRESS:PORT,INDEX,COUNT"):
        distributed.start(where)


def documented(language, containing):
    """A block of code of docs/explanations/devices.md."""
    text = (ROOT / "docs" / "explanations" / "devices.md").read_text()
    (block,) = [b for b in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if containing in b]
    return block


@pytest.mark.slow
def test_the_documented_fit_in_ray(tmp_path):
    pytest.importorskip("ray")
    data = np.random.default_rng(2).standard_normal((6000, 260)).astype(np.float32) + 3
    for number, part in enumerate(np.array_split(data, [10, 300, 310, 5900])):
        np.save(tmp_path / f"{number}.npy", part)
    program = documented("python", "import ray") + (
        "\nimport sys\n"
        "ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "fit(sys.argv[2:], fan_in=2).save(sys.argv[1])\n"
        "ray.shutdown()\n"
    )
    (tmp_path / "fit.py").write_text(program)
    out, paths = tmp_path / "whitening.safetensors", [tmp_path / f"{number}.npy" for number in range(5)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(tmp_path / "fit.py"), str(out), *map(str, paths)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    found, alone = Whitening.load(out), Whitening(n_components=256).fit(data)
    assert found.n_samples_seen_ == 6000
    np.testing.assert_allclose(found.mean_, alone.mean_, rtol=1e-6)
    np.testing.assert_allclose(found.eigenvalues_, alone.eigenvalues_, rtol=1e-5)
