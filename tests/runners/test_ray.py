"""Ray with two workers: the parts, vectors and moments are those of this machine alone."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.runners import Parts
from tests.commands.conftest import generated
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
TEXTS = generated(400)
PROGRAM = """
import sys
import ray
from jaxwhiten import Encoder
from jaxwhiten.runners import Parts, Source, embed_files
from jaxwhiten.runners.ray import embed, fit

if __name__ == "__main__":
    folder, model = sys.argv[1:]
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    how = {"pooling": "mean", "max_length": 32}
    encoder = Encoder.from_pretrained(model, **how)
    told = {"part_rows": 50, "moments": True, "runner": "ray", "workers": 2}
    print(embed_files([Source(f"{folder}/a.txt")], f"{folder}/parts", encoder, **told)["rows"], flush=True)
    texts = open(f"{folder}/a.txt").read().split("\\n")
    rows = [{"n": i, "text": text} for i, text in enumerate([*texts, None])]
    found = embed(ray.data.from_items(rows), model, id_column="n", batch_size=64, **how).materialize()
    fit(found).save(f"{folder}/m.safetensors")
    kept = sorted(found.take_all(), key=lambda row: row["id"])
    assert kept[-1]["vector"] is None and "None is not text" in kept[-1]["error"], kept[-1]
    import numpy as np
    np.save(f"{folder}/v.npy", np.array([row["vector"] for row in kept[:-1]]))
    ray.shutdown()
"""


def test_parts_and_data_sets_on_ray(tiny_model, tmp_path):
    pytest.importorskip("ray", reason="the extra ray")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(tiny_model)]
    with subprocess.Popen(
        command, env=environment, stdout=-1, stderr=-1, text=True, start_new_session=True, cwd=tmp_path
    ) as started:
        try:
            out, err = started.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    assert started.returncode == 0, err[-3000:]
    assert out.split()[0] == "400"
    alone = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(TEXTS)
    parts = Parts(tmp_path / "parts")
    ids, vectors = parts.all()
    assert ids == [f"a.txt:{i + 1}" for i in range(400)]
    written = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(vectors, alone, atol=1e-6)
    np.testing.assert_allclose(written, alone, atol=1e-6)
    for found, rows in ((parts.moments(), vectors), (Moments.load(tmp_path / "m.safetensors"), written)):
        one = Moments().update(rows.astype(np.float64))
        assert found.n == 400
        np.testing.assert_allclose(found.M2, one.M2, rtol=1e-12, atol=1e-12 * np.abs(one.M2).max())
