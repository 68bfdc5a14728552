"""`jaxwhiten drift`: an index, new texts, and whether what was fitted still describes them."""

import json

from tests.commands.conftest import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


def test_an_index_of_codes_knows_its_fit(run, tiny_model, tmp_path):
    words = ("--model", tiny_model, *MODEL, "--bytes", 8, "-o", tmp_path / "index")
    (tmp_path / "fitted.txt").write_text("\n".join(generated(3000, seed=8)))
    assert run("index", tmp_path / "fitted.txt", *words).code == 0
    (tmp_path / "same.txt").write_text("\n".join(generated(1500, seed=9)))
    done = run("drift", tmp_path / "index", tmp_path / "same.txt")
    assert done.code == 0, done.err
    assert "1,500 new texts: fine" in done.out, done.out
    (tmp_path / "other.txt").write_text("\n".join(["1984"] * 50 + ["Short."] * 50))
    done = run("drift", tmp_path / "index", tmp_path / "other.txt", "--json")
    found = json.loads(done.out)
    assert found["verdict"] == "refit now"
    assert "loss of the code" in found["measures"]
    assert found["n"] == 100


def test_the_model_folder_knows_it_where_the_index_does_not(run, tiny_model, corpus, tmp_path):
    small = f"{tmp_path / 'small'}/"
    assert run("fit", corpus, "--model", tiny_model, *MODEL, "-k", 12, "-o", small).code == 0
    assert run("index", corpus, "--model", small, "-o", tmp_path / "index").code == 0
    done = run("drift", tmp_path / "index", corpus)
    assert done.code == 0, done.err
    assert "600 new texts: fine" in done.out
    assert run("index", corpus, "--model", tiny_model, *MODEL, "-o", tmp_path / "raw").code == 0
    done = run("drift", tmp_path / "raw", corpus)
    assert (done.code, "no fit to compare with" in done.err) == (2, True)
