"""`jaxwhiten tune`: the encoder comes from the file, the pairs from a task or a table, the result goes into a file."""

import json
import re

import numpy as np
import pytest

from jaxwhiten import Encoder, Whitening
from jaxwhiten.datasets import load_sts
from jaxwhiten.metrics.scores import cosine_pairs, spearman
from jaxwhiten.whitening.tuning import ScoredPairs, tune
from tests.tiny import write_model


def scored(encoder, pairs):
    return ScoredPairs(encoder.encode(pairs.sentence1), encoder.encode(pairs.sentence2), pairs.score)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two tables of pairs made of the sample's."""
    folder, pairs = tmp_path_factory.mktemp("pairs"), load_sts("sts_sample").splits["test"]
    rows = [f"{a}\t{b}\t{s}" for a, b, s in zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True)]
    for name, part in (("dev", rows[::2]), ("test", rows[1::2])):
        (folder / f"{name}.tsv").write_text("\n".join(["one\ttwo\tgold", *part]), encoding="utf-8")
    return folder


def test_a_task_with_one_split(run, tiny_model, whitening_file):
    done = run("tune", whitening_file, "--task", "sts_sample", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    found = tune(Whitening.load(whitening_file), scored(encoder, load_sts("sts_sample").splits["test"]))
    assert (report["on"], report["held_out"]) == ("sts_sample test", None)
    assert report["own"]["n_components"] == 16
    assert report["best"] == pytest.approx(found.best._asdict(), abs=1e-2)
    assert len(report["grid"]) == 25 * 3
    assert report["intervals"]["best"] == pytest.approx(list(found.intervals[2]), abs=0.5)
    assert report["warnings"] == list(found.warnings)
    warned = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert warned == [f"warning: {text}" for text in found.warnings]


def test_tables_a_plot_and_the_tuned_file(run, whitening_file, tables, tmp_path):
    words = ("--pairs", tables / "dev.tsv", "--held-out-pairs", tables / "test.tsv", "--columns", "one,two,gold")
    grid = ("-k", 4, 32, "--beta", 0, 1, "--gamma", 0.5)
    files = ("--output", tmp_path / "w.safetensors", "--plot", tmp_path / "tune.png")
    done = run("tune", whitening_file.parent / "moments.safetensors", *words, *grid, *files)
    assert done.code == 0, done.err
    head, *_ = done.out.splitlines()
    assert head.startswith(f"Tuned on {tables / 'dev.tsv'}, ")
    assert re.search(r"^best .*\d–\d.* \(.* to .*\)$", done.out, re.MULTILINE)
    assert re.search(r"^not whitened .*\d–\d", done.out, re.MULTILINE)
    assert done.out.splitlines()[-3:][0] == "best of each k"
    assert (tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")
    tuned = Whitening.load(tmp_path / "w.safetensors")
    facts = tuned.provenance["tuned"]
    assert (tuned.n_components or 32, tuned.beta, tuned.gamma) == (facts["n_components"], facts["beta"], facts["gamma"])
    assert tuned.n_components in (4, None)
    assert facts["held_out"] is not None


@pytest.mark.slow
def test_real_sts_b(run, minilm, real_data, tmp_path):
    """MiniLM on STS-B: the score of the vectors as they are is the published one, and the held-out figure is told."""
    encoder = Encoder.from_pretrained(minilm, pooling="auto")
    splits = load_sts("STS-B", real_data).splits
    texts = list(dict.fromkeys(splits["dev"].sentence1 + splits["dev"].sentence2))[:400]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    file = tmp_path / "m.safetensors"
    assert run("fit", tmp_path / "texts.txt", "--model", minilm, "--moments", file).code == 0
    done = run("tune", file, "--data-dir", real_data, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    test = scored(encoder, splits["test"])
    raw = 100 * spearman(cosine_pairs(test.first, test.second), test.gold)
    assert report["not_whitened"]["held_out"] == pytest.approx(raw, abs=0.01)
    assert report["best"]["score"] >= report["not_whitened"]["score"] - 0.01
    assert (report["pairs"], report["held_out"]["pairs"]) == (1500, 1379)


def test_another_model_is_refused_and_a_file_without_one_asks(run, whitening_file, tmp_path):
    other = write_model(tmp_path / "other", seed=3)
    done = run("tune", whitening_file, "--task", "sts_sample", "--model", other)
    assert (done.code, "expected --model " in done.err) == (2, True)
    Whitening().fit(np.random.default_rng(0).normal(size=(400, 32))).save(tmp_path / "w")
    done = run("tune", tmp_path / "w", "--task", "sts_sample")
    assert (done.code, "specify --model" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "STS-C"], "'STS-B'"),
        (["--task", "sts_sample", "--split", "dev"], "Valid: test"),
        (["--task", "sts_sample", "--held-out", "test"], "specify a different one"),
        (["--task", "sts_sample", "-k", "99"], "-k 99: expected an integer from 1 to 32"),
        (["--task", "sts_sample", "--gamma", "2"], "--gamma 2.0: expected"),
        (["--task", "sts_sample", "--plot", "x.svg"], "Valid: .png"),
        (["--pairs", "{dev}", "--split", "dev"], "with --pairs use --held-out-pairs"),
        (["--held-out-pairs", "{dev}"], "requires --pairs"),
        (["--pairs", "{dev}", "--held-out-pairs", "{dev}", "--columns", "one,two,gold"], "are the pairs to tune on"),
        (["--pairs", "{dev}", "--columns", "one,two"], "expected three names"),
        (["--pairs", "{dev}", "--columns", "one,gold,two"], "is not a number"),
        (["--pairs", "{dev}", "--held-out-pairs", "absent.tsv", "--columns", "one,two,gold"], "no such file"),
    ],
)
def test_mistakes_are_told_in_one_line(run, whitening_file, tables, words, message):
    done = run("tune", whitening_file, *[word.format(dev=tables / "dev.tsv") for word in words])
    assert (done.code, message in done.err, done.err.count("\n")) == (2, True, 1), done.err
