"""Ray with two workers: the parts, vectors and moments are those of this machine alone."""

import numpy as np
import pytest

from jaxwhiten import Moments
from jaxwhiten.runners import Parts
from tests.runners.program import TEXTS, check, run

pytestmark = pytest.mark.slow
PROGRAM = """
import sys
import ray
from jaxwhiten import Encoder
from jaxwhiten.runners import Parts, Source, embed_files
from jaxwhiten.runners.ray import embed, fit

if __name__ == "__main__":
    folder, model = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    how = {"pooling": "mean", "max_length": 32}
    encoder = Encoder.from_pretrained(model, **how)
    told = {"part_rows": 50, "ray": 2}
    print(embed_files([Source(f"{folder}/a.txt")], f"{folder}/parts", encoder, **told)["rows"], flush=True)
    texts = open(f"{folder}/a.txt").read().split("\\n")
    rows = [{"n": i, "text": text, "odd": i % 2 == 1} for i, text in enumerate([*texts, None])]
    all_cpus = {"batch_size": 64, "concurrency": 2}
    found = embed(ray.data.from_items(rows), model, id_column="n", keep=["odd"], **all_cpus, **how).materialize()
    fit(found).save(f"{folder}/m.safetensors")
    assert fit(ray.data.from_items([])).n == 0
    kept = sorted(found.take_all(), key=lambda row: row["id"])
    assert kept[-1]["vector"] is None and "None is not text" in kept[-1]["error"], kept[-1]
    import numpy as np
    np.save(f"{folder}/v.npy", np.array([row["vector"] for row in kept[:-1]]))
    ray.shutdown()
"""


def test_parts_and_data_sets_on_ray(tiny_model, tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    assert run(PROGRAM, tmp_path, tiny_model, RAY_USAGE_STATS_ENABLED="0").split()[0] == "400"
    parts = Parts(tmp_path / "parts")
    ids, vectors = parts.all()
    assert ids == [f"a.txt:{i + 1}" for i in range(400)]
    check(vectors, parts.moments(), tiny_model)
    check(np.load(tmp_path / "v.npy"), Moments.load(tmp_path / "m.safetensors"), tiny_model)
