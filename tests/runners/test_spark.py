"""Spark on two threads: vectors, moments and whitened vectors are those of this machine alone."""

import shutil

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening
from tests.runners.program import check, run, write_rows

pytestmark = pytest.mark.slow
PROGRAM = """
import sys

import numpy as np
from pyspark.sql import SparkSession

from jaxwhiten import Whitening
from jaxwhiten.runners.spark import embed, fit, whiten

if __name__ == "__main__":
    folder, model = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    frame = spark.read.parquet(f"{folder}/a.parquet").repartition(4)
    found = embed(frame, model, id_column="n", keep=["odd"], pooling="mean", max_length=32)
    found.write.parquet(f"{folder}/v")
    found = spark.read.parquet(f"{folder}/v")
    print(found.where("vector is null").count(), fit(found.where("id < 0")).n)
    moments = fit(found)
    moments.save(f"{folder}/m.safetensors")
    small = whiten(found, Whitening.from_moments(moments, n_components=4)).orderBy("id").collect()
    assert [row.vector for row in small[400:]] == [None, None, None], small[400:]
    np.save(f"{folder}/small.npy", np.array([row.vector for row in small[:400]]))
    spark.stop()
"""


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
def test_vectors_moments_and_whitening_on_spark(tiny_model, tmp_path):
    pytest.importorskip("pyspark")
    pq = pytest.importorskip("pyarrow.parquet")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    write_rows(tmp_path / "a.parquet")
    assert run(PROGRAM, tmp_path, tiny_model).split() == ["3", "0"]
    found = pq.read_table(tmp_path / "v").sort_by("id")
    assert found["id"].to_pylist() == list(range(403))
    errors = ["None is not text", "longer than 1048576 characters", r"not UTF-8: b'\xff'"]
    assert found["error"].to_pylist() == [None] * 400 + errors
    vectors = np.array(found["vector"].to_pylist()[:400], np.float32)
    moments = Moments.load(tmp_path / "m.safetensors")
    check(vectors, moments, tiny_model)
    small = Whitening.from_moments(moments, n_components=4).transform(vectors)
    np.testing.assert_allclose(np.load(tmp_path / "small.npy"), small, atol=1e-5)
