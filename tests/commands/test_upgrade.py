"""`jaxwhiten upgrade`: begun, searched, filled by parts, and finished as an index of the new encoder."""

import json

import pytest

from jaxwhiten import Encoder
from jaxwhiten.search import load_index, search_text


@pytest.fixture
def new(tiny_model, tmp_path):
    return Encoder.from_pretrained(tiny_model, pooling="cls", max_length=16).save(tmp_path / "new")


@pytest.mark.slow
def test_from_the_old_encoder_to_the_new_one(run, corpus, tiny_model, new, tmp_path):
    index = tmp_path / "idx"
    assert run("index", corpus, "-o", index, "--model", tiny_model, "--pooling", "mean", "--no-cache").code == 0
    texts = len(load_index(index).documents)
    assert "specify the new encoder with --model" in run("upgrade", index).err

    begun = run("upgrade", index, "--model", new, "--candidates", 5)
    assert begun.code == 0
    assert begun.out.startswith(f"{index}: 0.0% of the documents embedded with {new}")
    found = run("search", index, "a man plays", "-k", 3, "--json")
    assert found.code == 0
    assert len(json.loads(found.out)["hits"]) == 3
    assert "by " + str(new) in json.loads(run("inspect", index, "--json").out)["upgrade"]
    assert run("upgrade", index, "--fill", 7).code == 0
    assert 0 < float(json.loads(run("inspect", index, "--json").out)["upgrade"].partition("%")[0]) < 100

    assert run("upgrade", index, "--fill", texts).out.endswith("old vectors removed\n")
    assert not (index / "upgrade").exists()
    encoder = Encoder.from_pretrained(new)
    (expected,) = search_text(load_index(index), encoder, ["a man plays"], 3)
    hits = json.loads(run("search", index, "a man plays", "-k", 3, "--json").out)["hits"]
    assert [hit["id"] for hit in hits] == [hit.id for hit in expected]
    refused = run("upgrade", index, "--model", new)
    assert refused.code != 0
    assert "nothing to upgrade" in refused.err


def test_without_the_new_encoder_the_old_one_answers(run, corpus, tiny_model, new, tmp_path):
    index = tmp_path / "idx"
    assert run("index", corpus, "-o", index, "--model", tiny_model, "--pooling", "mean", "--no-cache").code == 0
    alone = run("search", index, "a man plays", "-k", 3).out
    assert run("upgrade", index, "--model", new).code == 0
    new.rename(tmp_path / "moved")
    done = run("search", index, "a man plays", "-k", 3)
    assert (done.code, done.out) == (0, alone), done.err
    advice = f"Only the old encoder answers: record its location with `jaxwhiten upgrade {index} --model DIR`"
    assert f"warning: {new}: the model" in done.err
    assert advice in done.err
    assert "was not found" in run("upgrade", index).err
    assert run("upgrade", index, "--model", tmp_path / "moved").code == 0
    done = run("search", index, "a man plays", "-k", 3)
    assert (done.code, "warning" in done.err) == (0, False)
    assert done.out != alone
