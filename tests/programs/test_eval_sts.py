"""`eval.sts`: the whole program on the sample with a tiny model, and its numbers against a plain numpy form."""

import itertools
import shutil

import numpy as np
import pytest
from scipy.stats import spearmanr

from configs import sample
from eval import published, runs, tables
from eval import sts as program
from eval.aggregates import scores_of
from eval.data import load_nli, load_sts
from eval.report import sts as views
from eval.runs import Record, Run
from jaxwhiten import Encoder
from tests.tiny import SENTENCES, by_pooling, write_model

# The plain form: float64, one line a formula of the reference.


def plain_fit(rows):
    """Mean, eigenvalues and eigenvectors from the definition of the covariance.

    Vectors out of a layer norm span less than their width; what float64 leaves in the other directions is noise, which
    the floor keeps from being blown up.
    """
    rows = rows.astype(np.float64)
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows) - np.outer(mean, mean))
    return mean, np.maximum(values[::-1], 1e-6 * values[-1]), vectors[:, ::-1]


def plain_whiten(x, mean, values, vectors, k, beta=1.0, gamma=1.0):
    """x̃ = (x − βμ) U Λ^(−γ/2), the first k columns."""
    return (x.astype(np.float64) - beta * mean) @ vectors[:, :k] * values[:k] ** (-gamma / 2)


def plain_scores(a, b, pairs):
    a, b = a.astype(np.float64), b.astype(np.float64)
    cosine = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    names = np.array(pairs.subset)
    subsets = sorted(set(pairs.subset))
    by_subset = [100 * spearmanr(cosine[names == s], pairs.score[names == s]).statistic for s in subsets]
    sizes = [(names == s).sum() for s in subsets]
    return {
        "all": 100 * spearmanr(cosine, pairs.score).statistic,
        "mean": np.mean(by_subset),
        "wmean": np.average(by_subset, weights=sizes),
    }


def plain_sides(pairs, vector):
    return tuple(
        np.stack([vector[s if s.strip() else "."] for s in side]) for side in (pairs.sentence1, pairs.sentence2)
    )


def assert_rows_agree(rows, tasks, vector_of, nli_rows, tolerance):
    """Every row of results against the plain form, on vectors by pooling and sentence."""
    assert rows
    fits = {}
    for row, task in itertools.product(rows, tasks):
        vector, whitening = vector_of[row.pooling], row.whitening
        a, b = plain_sides(task.splits["test"], vector)
        if whitening != "none":
            key = row.pooling, whitening, task.name
            if key not in fits:
                sides = [side for pairs in task.splits.values() for side in plain_sides(pairs, vector)]
                fit_on = np.concatenate(sides) if whitening == "target" else np.stack([vector[s] for s in nli_rows])
                fits[key] = len(fit_on), plain_fit(fit_on)
            n_fit, fit = fits[key]
            knobs = row.k, row.beta, row.gamma
            a, b = plain_whiten(a, *fit, *knobs), plain_whiten(b, *fit, *knobs)
            assert row.tasks[task.name].n_fit == n_fit
        for aggregate, value in plain_scores(a, b, task.splits["test"]).items():
            assert row.tasks[task.name][aggregate] == pytest.approx(value, abs=tolerance), (row, task.name)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-model")


NLI = [("A man is sleeping.", "He rests.", "entailment"), ("Two dogs run.", "Cats swim.", "contradiction")]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with NLI rows only; a premise is repeated, and one row has a two-way label."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "nli").mkdir()
    rng = np.random.default_rng(0)
    words = sorted({word for text in SENTENCES for word in text.lower().split()})
    rows = [*NLI, ("A man is sleeping.", "A man sleeps outside.", "not_entailment")]
    rows += [(" ".join(rng.choice(words, 7)), " ".join(rng.choice(words, 5)), "neutral") for _ in range(150)]
    lines = ["premise\thypothesis\tlabel", *("\t".join(row) for row in rows)]
    (folder / "nli" / "pairs_nli.tsv").write_text("\n".join(lines) + "\n")
    return folder


def config_of(tmp_path, model, **changes):
    config = sample.get_config()
    config.aggregate = "wmean"
    values = {"model": str(model), "poolings": "mean,cls", "ks": "0,16,8", "out": str(tmp_path / "out"), "bootstrap": 0}
    values["gamma"] = "1"
    config.update({**values, **changes})
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model, data_dir):
    """One whole run: two poolings, three whitenings, two ks, two values of γ."""
    folder = tmp_path_factory.mktemp("run")
    changes = {"whitening": "none,target,nli", "ks": "0,8", "gamma": "1,0.5", "data_dir": str(data_dir)}
    program.main(config_of(folder, model, bootstrap=200, methods="shrunk-whitening", baselines="tfidf", **changes))
    return folder / "out"


def test_rows_are_settings_with_their_fits(finished):
    rows = Run.load(finished).rows
    settings = [("none", 0.0, 32)] + [(w, g, k) for w in ("target", "nli") for g in (1.0, 0.5) for k in (32, 8)]
    settings += [("shrunk-whitening", None, k) for k in (32, 8)]
    expected = [(pooling, *setting) for pooling in ("mean", "cls") for setting in settings]
    words = [("tfidf", name, None, rows[0].k) for name in ("target", "nli")]
    assert [(r.pooling, r.whitening, r.gamma, r.k) for r in rows] == [*words, *expected]
    for row in rows:
        assert row.transductive == (row.whitening in ("target", "shrunk-whitening"))
        assert row.n_fit == {"none": 0, "target": 780, "nli": 306, "shrunk-whitening": 780}[row.whitening]
        scores = row.tasks["sts_sample"]
        assert scores.low < scores.wmean < scores.high


def test_every_row_equals_the_plain_form(finished, model, data_dir):
    run = Run.load(finished)
    task = load_sts("sts_sample")
    nli = load_nli(data_dir, two_way="keep")
    nli_rows = [*nli.premise, *nli.hypothesis]
    encoder = Encoder.from_pretrained(model, pooling="mean", max_length=64)
    pairs = task.splits["test"]
    sentences = sorted({*pairs.sentence1, *pairs.sentence2, *nli_rows})
    vectors = by_pooling(encoder, sentences, ["mean", "cls"])
    vector_of = {pooling: dict(zip(sentences, x, strict=True)) for pooling, x in vectors.items()}
    whitened = [row for row in run.rows if row.gamma is not None]
    assert_rows_agree(whitened, [task], vector_of, nli_rows, tolerance=0.02)


def test_published_rows_are_matched_on_the_whole_setting():
    scores = Record(all=72.0, mean=70.0, wmean=71.0)
    row = Record(model="hub/all-MiniLM-L6-v2", pooling="mean", whitening="none", k=384, transductive=False)
    row |= {"beta": 0.0, "gamma": 0.0, "further": None, "tasks": dict.fromkeys(("STS12", "STS-B", "SICK-R"), scores)}
    (match,) = published.compare([row], ["STS12", "STS-B", "SICK-R"])
    assert match.published == {"STS12": 72.37, "STS-B": 82.03}
    for change in ({"pooling": "cls"}, {"k": 256}, {"model": "other"}, {"whitening": "target", "gamma": 0.5}):
        assert published.compare([row.but(**change)], ["STS12"]) == []


# --- tables of finished runs in Markdown files


@pytest.fixture
def page(finished, tmp_path, monkeypatch):
    """A page beside the finished run, runs/tiny."""
    shutil.copytree(finished, tmp_path / "runs" / "tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "page.md"


def test_a_place_is_filled_and_the_rest_is_left_alone(page):
    comment = "<!-- table tiny sts_table pooling=cls whitening=none,target -->\n"
    page.write_text(f"# Before\n\n{comment}old\n<!-- end -->\n\nAfter.\n")
    assert tables.fill(page) == []
    text = page.read_text()
    whole = Run.load("runs/tiny")
    whole.rows[:] = [row for row in whole.rows if row.pooling == "cls" and row.whitening in ("none", "target")]
    assert text == f"# Before\n\n{comment}\n{views.sts_table(whole).markdown()}\n\n<!-- end -->\n\nAfter.\n"
    assert tables.fill(page) == []
    assert page.read_text() == text


def test_runs_of_several_seeds_are_one_table_of_means(page):
    whole = Run.load("runs/tiny")
    moved = []
    for row in whole.rows:
        (task, scores), interval = *row.tasks.items(), row.average_interval
        interval = interval.but(low=interval.low + 2, high=interval.high + 2)
        tasks = Record({task: scores.but(wmean=scores.wmean + 2)})
        moved.append(row.but(tasks=tasks, average_interval=interval))
    whole.save("runs/seeds/tiny-0-sts")
    Run(whole.header, moved).save("runs/seeds/tiny-1-sts")
    means = runs.find("seeds/tiny-*-sts")
    for row, mean in zip(whole.rows, means.rows, strict=True):
        assert mean.model == "seeds/tiny, 2 seeds"
        assert scores_of(mean, "wmean")["average"] == pytest.approx(scores_of(row, "wmean")["average"] + 1)
        assert mean.average_interval.low == row.average_interval.low
        assert mean.average_interval.high == row.average_interval.high + 2
    page.write_text("<!-- table seeds/tiny-*-sts average_table plain pooling=cls -->\n<!-- end -->\n")
    assert tables.fill(page) == []
    assert page.read_text().splitlines()[4].startswith("| tiny, 2 seeds | cls | raw |")
    page.write_text("<!-- table seeds/none-*-sts average_table -->\n<!-- end -->\n")
    assert tables.fill(page) == ["seeds/none-*-sts"]
