"""Equal moments give equal codes, however many cores the machine has."""

import os
import subprocess
import sys

from tests.conftest import ROOT

FIT = """
import sys
import numpy as np
from jaxwhiten import Moments, SpectrumCode, Whitening
d = 256
rows = np.random.default_rng(0).standard_normal((d, d)) * np.arange(1, d + 1) ** -0.5
moments = Moments(5000, np.linspace(0, 0.3, d), 5000 * rows.T @ rows)
for fitted in (moments, Whitening.from_moments(moments)):
    for array in SpectrumCode(bytes=8).fit(fitted).tensors().values():
        sys.stdout.buffer.write(array.tobytes())
"""


def test_a_code_has_the_same_bytes_with_one_thread_and_with_two():
    def fitted(threads):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        return subprocess.run([sys.executable, "-c", FIT], capture_output=True, cwd=ROOT, env=environment, check=True)

    one, two = fitted("1").stdout, fitted("2").stdout
    assert len(one) > 256**2
    assert one == two
