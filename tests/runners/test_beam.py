"""Beam's DirectRunner: vectors and moments are those of this machine alone; a row that is no text is a dead letter."""

import json

import numpy as np
import pytest

from jaxwhiten import Moments
from tests.runners.program import check, run, write_rows

pytestmark = pytest.mark.slow
PROGRAM = """
import json
import sys

import apache_beam as beam
import pyarrow as pa

from jaxwhiten.runners.beam import Embed, FitMoments

if __name__ == "__main__":
    folder, model = sys.argv[1:]
    how = {"pooling": "mean", "max_length": 32}
    columns = {"id_column": "n", "keep": ["odd"]}

    def keep(name):
        return beam.Map(lambda moments: moments.save(f"{folder}/{name}.safetensors"))

    def line(row):
        with open(f"{folder}/dead.jsonl", "a") as file:
            file.write(json.dumps({**row, "text": repr(row["text"])[:20]}) + chr(10))

    with beam.Pipeline(runner="DirectRunner") as pipeline:
        tables = pipeline | beam.io.ReadFromParquetBatched(f"{folder}/a.parquet")
        found = tables | "table" >> Embed(model, **columns, **how)
        schema = pa.schema({"id": pa.int64(), "odd": pa.bool_(), "vector": pa.list_(pa.float32(), 32)})
        found.vectors | beam.io.WriteToParquetBatched(f"{folder}/v", schema, file_name_suffix=".parquet")
        found.vectors | beam.CombineGlobally(FitMoments()) | "all" >> keep("m")
        found.dead | "dead" >> beam.Map(line)
        rows = [{"n": 1, "odd": True, "text": 7}, {"n": 2, "odd": False, "text": "a cat"}, {"n": 3, "odd": True}]
        rows = pipeline | beam.Create(rows) | beam.BatchElements(1, 100)
        rows = rows | "rows" >> Embed(model, **columns, **how)
        rows.dead | "dead rows" >> beam.Map(line)
"""


def test_vectors_moments_and_dead_letters_on_beam(tiny_model, tmp_path):
    pytest.importorskip("apache_beam")
    pq = pytest.importorskip("pyarrow.parquet")
    write_rows(tmp_path / "a.parquet")
    run(PROGRAM, tmp_path, tiny_model)
    found = pq.read_table(sorted(tmp_path.glob("v-*.parquet"))).sort_by("id")
    assert found["id"].to_pylist() == list(range(400))
    vectors = np.array(found["vector"].to_pylist(), np.float32)
    check(vectors, Moments.load(tmp_path / "m.safetensors"), tiny_model)
    dead = {row["id"]: row for row in map(json.loads, (tmp_path / "dead.jsonl").read_text().splitlines())}
    assert sorted(dead) == [1, 3, 400, 401, 402]
    assert dead[1]["error"] == "7 is not text"
    assert dead[400]["error"] == dead[3]["error"] == "None is not text"
    assert dead[401]["error"].startswith("longer than")
    assert dead[402] == {"id": 402, "odd": False, "error": r"not UTF-8: b'\xff'", "text": r"b'\xff'"}
