"""Two processes sharing one cache folder or one index: the right answers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder
from tests.conftest import ONE_DEVICE
from tests.sentences import generated
from tests.tiny import by_pooling

ROOT = Path(__file__).resolve().parents[2]
TEXTS = generated(160)

PROGRAM = """
import sys, time, pathlib, numpy as np
from jaxwhiten import Encoder
from jaxwhiten.encoding import EmbeddingStore, store
from tests.sentences import generated
model, place, number = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
texts = generated(160)
encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
encoder.encode(texts)
encoder.view.core.engine.layout.token_budget, store._SECONDS = 256, 0  # each batch is written
(place / f"ready-{number}").touch()
while len(list(place.glob("ready-*"))) < 2:
    time.sleep(0.001)
for round in range(8):
    found = EmbeddingStore(place / f"store-{round}").encode(encoder, texts, pooling=("mean", "max"))
    np.savez(place / f"found-{number}-{round}.npz", **found)
"""


@pytest.mark.slow
def test_two_processes_share_a_cache(tiny_model, tmp_path):
    """Both encode the same sentences into the same files at the same time, eight times."""
    environment = {
        **os.environ,
        "XLA_FLAGS": ONE_DEVICE,
        "PYTHONPATH": str(ROOT),
        "JAXWHITEN_CACHE_DIR": str(tmp_path / "c"),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tiny_model), str(tmp_path), str(number)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in processes:
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said[-3000:]
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    expected = by_pooling(encoder, TEXTS, ("mean", "max"))
    for file in tmp_path.glob("found-*.npz"):
        found = np.load(file)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
        found.close()
    assert len(list(tmp_path.glob("found-*.npz"))) == 16
    assert len(list(tmp_path.glob("store-*/*"))) == 16
