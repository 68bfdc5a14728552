"""`jaxwhiten bench`: every engine and precision, with its cosine to float32, and one recommendation."""

import json

import pytest

from jaxwhiten.engines import ENGINES
from tests.sentences import generated


@pytest.mark.slow
def test_every_engine_and_precision_has_a_row_and_one_is_recommended(run, tiny_model, tmp_path):
    pytest.importorskip("openvino")
    (tmp_path / "texts.txt").write_text("\n".join(generated(20)))
    done = run("bench", tiny_model, tmp_path / "texts.txt", "--json")
    assert done.code == 0
    told = json.loads(done.out)
    assert {row["engine"] for row in told["rows"]} == set(ENGINES)
    assert [row["default"] for row in told["rows"]].count(True) == 1
    assert all(row["cosine"] > 0.99 for row in told["rows"])
    assert told["recommended"] in told["rows"]
