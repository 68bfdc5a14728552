"""Every command that encodes says once how many texts its encoder did not read to the end."""

import shutil

import pytest

from jaxwhiten import Encoder
from jaxwhiten.encoding import distillation
from jaxwhiten.head import Normalize
from tests.sentences import generated

LONGEST = 12
CUT = 7  # of 50 texts


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("cut") / "model"
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=LONGEST).then(Normalize()).save(out)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Texts of at most two words, and some that are longer; as lines, and as pairs."""
    folder = tmp_path_factory.mktemp("texts")
    short = list(dict.fromkeys(" ".join(text.split()[:2])[:8] for text in generated(400)))[: 50 - CUT]
    found = [*short, *(f"{text} {text} {text}" for text in generated(CUT, seed=1))]
    assert len(set(found)) == 50
    (folder / "texts.txt").write_text("\n".join(found) + "\n")
    rows = zip(found[::2], found[1::2], range(25), strict=True)
    (folder / "pairs.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows)
    )
    return folder


COMMANDS = {
    "encode": "encode TEXTS -o OUT.npy --model MODEL",
    "embed": "embed TEXTS -o OUT --model MODEL",
    "fit": "fit TEXTS -o OUT/ --model MODEL -k 2",
    "index": "index TEXTS -o OUT --model MODEL",
    "score": "score PAIRS --model MODEL -k 2",
    "add": "add INDEX TEXTS",
    "distill": "distill --corpus TEXTS --model MODEL -o OUT/ -k 4",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_texts_that_are_cut_are_counted_once(run, model, texts, tmp_path, name, monkeypatch):
    monkeypatch.setattr(distillation, "ENOUGH", 10)
    Encoder.from_pretrained(model).encode([" ".join("abcdefghijklmnop")])  # of before the command
    places = {"TEXTS": texts / "texts.txt", "PAIRS": texts / "pairs.tsv", "MODEL": model, "OUT": tmp_path / "out"}
    if name == "add":
        places["INDEX"] = tmp_path / "index"
        (tmp_path / "some.txt").write_text("\n".join(generated(600)))
        done = run("index", tmp_path / "some.txt", "-o", places["INDEX"], "--model", model)
        assert done.code == 0, done.err
    words = COMMANDS[name]
    for key, path in places.items():
        words = words.replace(key, str(path))
    again = name in ("fit", "index")  # from the cache
    for _ in range(1 + again):
        done = run(*words.split())
        assert done.code == 0, done.err
        assert done.err.count(" were cut at ") == 1, done.err
        assert f"note: {CUT} of 50 texts were cut at {LONGEST} tokens" in done.err
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if name == "index":
            (tmp_path / "out").unlink()


@pytest.mark.slow
def test_a_search_says_that_its_query_was_cut(run, model, texts, tmp_path):
    assert run("index", texts / "texts.txt", "-o", tmp_path / "index", "--model", model, "--max-length", 60).code == 0
    done = run("search", tmp_path / "index", "a man", "music " * 100)
    assert "note: 1 of 2 texts were cut at 60 tokens" in done.err
    assert "were cut" not in run("search", tmp_path / "index", "a man").err
