"""Two processes sharing one cache folder, and threads sharing one object: the right answers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.encoding.store import EmbeddingStore, _Entry
from tests.conftest import ONE_DEVICE
from tests.sentences import generated

ROOT = Path(__file__).resolve().parents[2]
TEXTS = generated(160)

PROGRAM = """
import sys, time, pathlib, numpy as np
from jaxwhiten import Encoder
from jaxwhiten.encoding.store import EmbeddingStore
from tests.sentences import generated
model, place, number = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
texts = generated(160)
encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
encoder.encode(texts)
(place / f"ready-{number}").touch()
while len(list(place.glob("ready-*"))) < 2:
    time.sleep(0.001)
for round in range(8):
    found = EmbeddingStore(place / f"store-{round}", shard_rows=10).encode(encoder, texts, pooling=("mean", "max"))
    np.savez(place / f"found-{number}-{round}.npz", **found)
"""


@pytest.mark.slow
def test_two_processes_share_a_cache(tiny_model, tmp_path):
    """Both encode the same sentences into the same entries at the same time, eight times."""
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
    expected = encoder.encode(TEXTS, pooling=("mean", "max"))
    for file in tmp_path.glob("found-*.npz"):
        found = np.load(file)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
        found.close()
    assert len(list(tmp_path.glob("found-*.npz"))) == 16
    assert not list(tmp_path.rglob("shard-*"))


def test_shards_that_another_process_took_away_are_no_error(tiny_model, tmp_path):
    """The other was first: its array is read. It died before its array was there: encoded again."""
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    expected = encoder.encode(TEXTS)
    join = _Entry.join

    def late(entry):
        for shard in entry.folder.glob("shard-*"):
            shard.unlink()
        _Entry.join = join
        return join(entry)

    for store in (EmbeddingStore(tmp_path / "a"), EmbeddingStore(tmp_path / "b", shard_rows=50)):
        _Entry.join = late
        try:
            np.testing.assert_allclose(store.encode(encoder, TEXTS), expected, atol=1e-5)
        finally:
            _Entry.join = join
