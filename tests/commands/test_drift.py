"""`jaxwhiten drift`: an index, new texts, and whether what was fitted still describes them."""

import json

import pytest

from tests.sentences import generated

MODEL = ("--pooling", "mean", "--max-length", 32)


def test_an_index_of_codes_knows_its_fit(run, tiny_model, tmp_path):
    words = ("--model", tiny_model, *MODEL, "--bytes", 8, "--tuned", "-o", tmp_path / "index")
    (tmp_path / "fitted.txt").write_text("\n".join(generated(3000, seed=8)))
    assert run("index", tmp_path / "fitted.txt", *words).code == 0
    (tmp_path / "same.txt").write_text("\n".join(generated(1500, seed=9)))
    done = run("drift", tmp_path / "index", tmp_path / "same.txt")
    assert done.code == 0, done.err
    assert "1,500 new texts, compared with 3,000 texts of the fit: fine" in done.out, done.out
    (tmp_path / "other.txt").write_text("\n".join(["1984"] * 50 + ["Short."] * 50))
    done = run("drift", tmp_path / "index", tmp_path / "other.txt", "--json")
    found = json.loads(done.out)
    assert found["verdict"] == "refit now"
    loss = found["measures"]["code distortion"]
    assert loss["interval"][0] < loss["value"] < loss["interval"][1]
    assert found["n"] == 100


def test_the_model_folder_knows_it_where_the_index_does_not(run, tiny_model, corpus, tmp_path):
    small = f"{tmp_path / 'small'}/"
    assert run("fit", corpus, "--model", tiny_model, *MODEL, "-k", 12, "-o", small).code == 0
    assert run("index", corpus, "--model", small, "-o", tmp_path / "index").code == 0
    done = run("drift", tmp_path / "index", corpus)
    assert done.code == 0, done.err
    assert "600 new texts, compared with 600 texts of the fit: fine" in done.out


def test_a_model_with_a_code_knows_its_loss(run, tiny_model, corpus, tmp_path):
    small = f"{tmp_path / 'small'}/"
    assert run("fit", corpus, "--model", tiny_model, *MODEL, "--bytes", 8, "-o", small).code == 0
    assert run("index", corpus, "--model", small, "-o", tmp_path / "index").code == 0
    done = run("drift", tmp_path / "index", corpus, "--json")
    assert done.code == 0, done.err
    assert "code distortion" in json.loads(done.out)["measures"]


@pytest.mark.parametrize("options", [[], ["--whiten"], ["--codes", "int8"]])
def test_an_index_without_a_fit_compares_its_documents(run, tiny_model, corpus, tmp_path, options):
    assert run("index", corpus, "--model", tiny_model, *MODEL, *options, "-o", tmp_path / "index").code == 0
    (tmp_path / "same.txt").write_text("\n".join(generated(300, seed=9)))
    done = run("drift", tmp_path / "index", tmp_path / "same.txt")
    assert (done.code, "300 new texts, compared with 600 documents: fine" in done.out) == (0, True), done
    (tmp_path / "other.txt").write_text("\n".join(["1984"] * 30 + ["Short."] * 30))
    done = run("drift", tmp_path / "index", tmp_path / "other.txt")
    assert "refit now: they differ from the documents, but the index has no whitening or code to refit" in done.out


@pytest.mark.parametrize(("texts", "message"), [(["One."], "too few"), (["Short."] * 60, "identical")])
@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_what_cannot_be_judged_is_an_error(run, tiny_model, corpus, tmp_path, texts, message, json_too):
    if not (tmp_path / "index").exists():
        assert run("index", corpus, "--model", tiny_model, *MODEL, "--bytes", 8, "-o", tmp_path / "index").code == 0
    (tmp_path / "new.txt").write_text("\n".join(texts))
    done = run("drift", tmp_path / "index", tmp_path / "new.txt", *json_too)
    assert (done.code, done.out, message in done.err) == (2, "", True), done


def test_vectors_without_texts_or_a_fit_have_nothing_to_compare_with(run, tiny_model, corpus, tmp_path):
    assert run("embed", corpus, "--model", tiny_model, *MODEL, "-o", tmp_path / "parts").code == 0
    assert run("index", tmp_path / "parts", "-o", tmp_path / "index").code == 0
    done = run("drift", tmp_path / "index", corpus)
    assert (done.code, "nothing to compare with" in done.err) == (2, True), done
