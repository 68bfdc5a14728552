"""`jaxwhiten.train`: rows and an encoder in, a trained encoder out; the options and the scores of held-out rows."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

import jaxwhiten
from jaxwhiten import Encoder, SpectrumCode, TrainingOptions, Whitening
from jaxwhiten.datasets import Examples
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.head import Dense, Normalize
from jaxwhiten.training import HeldOut, Objective, hold_out
from jaxwhiten.training.held_out import Evaluations
from tests.sentences import generated

pytestmark = pytest.mark.usefixtures("fresh_cache")
TEXTS = generated(120)
PAIRS = list(zip(TEXTS[:60], TEXTS[60:], strict=True))
FAST = {"batch_size": 8, "steps": 6, "learning_rate": 1e-3, "progress": False, "buckets": 1}


@pytest.fixture
def encoder(shallow_model):
    return Encoder.from_pretrained(shallow_model, pooling="mean", max_length=16)


@pytest.mark.slow
def test_the_encoder_is_trained_and_a_folder_resumes_the_same_call(encoder, tmp_path, capsys):
    before, options = encoder.encode(TEXTS[:4]), TrainingOptions(**FAST, held_out=0.3)
    tuned, again = (jaxwhiten.train(encoder, PAIRS, options=options, folder=tmp_path / "run") for _ in range(2))
    np.testing.assert_array_equal(encoder.encode(TEXTS[:4]), before)
    after = tuned.encode(TEXTS[:4])
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(again.encode(TEXTS[:4]), after)
    saved = Encoder.from_pretrained(tuned.save(tmp_path / "tuned"))
    np.testing.assert_allclose(saved.encode(TEXTS[:4]), after, atol=1e-5)
    assert capsys.readouterr().out == "", "notes go to stderr"
    changed = dataclasses.replace(options, learning_rate=2e-3)
    with pytest.raises(MismatchError, match=r"learning_rate was 0\.001, now 0\.002"):
        jaxwhiten.train(encoder, PAIRS, options=changed, folder=tmp_path / "run")


@pytest.mark.parametrize("sizes", [{"batch_size": 1}, {"batch_size": 4, "accumulate": 4}])
@pytest.mark.parametrize("objective", ["mnr", "simcse", "cosent"])
def test_a_row_alone_is_refused_where_rows_are_compared(encoder, objective, sizes):
    rows = {"mnr": PAIRS, "simcse": TEXTS, "cosent": [(*pair, row) for row, pair in enumerate(PAIRS)]}[objective]
    options = TrainingOptions(**FAST | sizes, held_out=0.0)
    least = 2 * sizes.get("accumulate", 1)
    with pytest.raises(InputError, match=f"a row alone trains nothing: set batch_size={least} or more"):
        jaxwhiten.train(encoder, rows, objective, options)


@pytest.mark.slow
def test_an_encoder_is_trained_through_its_head_without_its_whitening_and_code(shallow_model, tmp_path, capsys):
    rng = np.random.default_rng(0)
    dense = Dense(rng.normal(size=(24, 32)).astype(np.float32) / 5, np.zeros(24, np.float32), None, "Tanh")
    start = Encoder.from_pretrained(shallow_model, pooling="cls", max_length=16, prompts={"query": "water "})
    floats = start.with_view(start.view.then(dense).then(Normalize()))
    vectors = floats.encode(TEXTS)
    sample = rng.normal(vectors.mean(0), vectors.std(0), (400, 24)).astype(np.float32)
    whitening = Whitening(gamma=0.5, n_components=20, shrinkage="oas").fit(sample)
    coded = floats.with_whitening(whitening).with_code(SpectrumCode(bytes=4).fit(whitening))
    loaded = Encoder.from_pretrained(coded.save(tmp_path / "base"))
    found, expected = (np.asarray(some.with_view(some.view.uncoded).encode(TEXTS)) for some in (loaded, coded))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    tuned = jaxwhiten.train(loaded, PAIRS, options=TrainingOptions(**FAST, held_out=0.0))
    head = tuned.view.head
    assert (head.whitening, head.code, tuned.prompts, tuned.max_length) == (None, None, start.prompts, 16)
    assert np.abs(head.steps[1].weight - dense.weight).max() > 1e-3
    assert "-k 20 --bytes 4 --gamma 0.5 -o " in capsys.readouterr().err


@pytest.mark.slow
def test_an_objective_may_be_ones_own(encoder):
    def pull(u, v, *, weight=1.0):
        return weight * ((u - v) ** 2).mean()

    options = TrainingOptions(**FAST, settings={"weight": 3.0}, held_out=0.0)
    tuned = jaxwhiten.train(encoder, PAIRS, Objective("pull", pull, (2, 2)), options)
    gaps = [((e.encode(TEXTS[:60]) - e.encode(TEXTS[60:])) ** 2).mean() for e in (encoder, tuned)]
    assert gaps[1] < gaps[0]


def test_every_option_has_help_and_a_record_leaves_display_out():
    assert all(field.metadata["help"] for field in dataclasses.fields(TrainingOptions))
    shown = {"save_every", "log_every", "keep", "progress"}
    assert {field.name for field in dataclasses.fields(TrainingOptions)} - set(TrainingOptions().record()) == shown


def test_steps_follow_from_epochs():
    found = TrainingOptions(epochs=2).resolved(12)
    assert (found.steps, found.evaluate_every) == (24, 3)
    found = TrainingOptions(steps=5, evaluate_every=2).resolved(12)
    assert (found.steps, found.evaluate_every) == (5, 2)


# --- held-out rows --------------------------------------------------------------------------------------------------


def test_pairs_are_scored_by_search(encoder):
    held_out = HeldOut(Examples({"a": [*TEXTS[:20], TEXTS[0]], "b": [*TEXTS[60:80], TEXTS[61]]}))
    cosines = np.asarray(encoder.similarity(encoder.encode(TEXTS[:20]), encoder.encode(TEXTS[60:80])))
    best = [max(cosines[row, row], cosines[0, 1] if row == 0 else -1) for row in range(20)]
    ranks = 1 + (cosines > np.array(best)[:, None]).sum(axis=1)
    expected = np.where(ranks <= 10, 1 / ranks, 0)
    np.testing.assert_allclose(held_out.values(encoder), expected, atol=1e-6)
    assert held_out.score(encoder) == pytest.approx(100 * np.mean(expected))
    words = held_out.values_of_words()
    found = held_out.compare({"before": held_out.values(encoder), "TF-IDF": words})
    assert found["TF-IDF"].change.value == pytest.approx(100 * (words.mean() - np.mean(expected)))
    assert found["before"].interval.low <= found["before"].value <= found["before"].interval.high
    assert np.isnan(found["before"].change.value), "of the first to itself"


def test_labels_are_scored_by_spearman(encoder):
    label = np.random.default_rng(0).random(20).astype(np.float32)
    held_out = HeldOut(Examples({"a": TEXTS[:20], "b": TEXTS[60:80]}, label))
    cosines = encoder.similarity_pairwise(encoder.encode(TEXTS[:20]), encoder.encode(TEXTS[60:80]))
    assert held_out.score(encoder) == pytest.approx(100 * spearmanr(cosines, label).statistic, abs=1e-6)
    copies = HeldOut(Examples({"a": TEXTS[:3], "b": [TEXTS[0], TEXTS[60], TEXTS[61]]}, label[:3]))
    assert copies.values_of_words()[0] == pytest.approx(1.0)


def test_what_is_held_out():
    pairs, scored = Examples({"a": TEXTS[:60], "b": TEXTS[60:]}), np.arange(60, dtype=np.int32) % 2
    kept, held_out = hold_out(pairs, 0.3, 0, False)
    assert len(kept) + len(held_out.examples) == 60
    assert hold_out(pairs, 0.0, 0, False) == (pairs, None)
    assert hold_out(Examples({"a": TEXTS}), 0.3, 0, False)[1] is None
    unordered = Examples(pairs.columns, scored, ("yes", "no"))
    assert hold_out(unordered, 0.3, 0, False)[1] is None, "nobody knows which class is more similar"
    assert hold_out(unordered, 0.3, 0, True)[1] is not None
    of_nli = Examples(pairs.columns, scored, ("contradiction", "neutral", "entailment"))
    assert hold_out(of_nli, 0.3, 0, False)[1] is not None


def test_the_interval_allows_for_the_choice_of_a_checkpoint():
    rng, held_out = np.random.default_rng(0), HeldOut(Examples({"a": TEXTS[:60], "b": TEXTS[60:]}))
    before, *others = rng.random((11, 60))
    best = max(others, key=np.mean)
    values = {"before": before, "after": best, "TF-IDF": others[0]}
    alone, chosen, same = (held_out.compare(values, rest) for rest in ((), others, [best]))
    assert same["after"].change.interval == pytest.approx(alone["after"].change.interval, abs=0.1)
    assert chosen["after"].change.value == alone["after"].change.value
    assert chosen["after"].change.interval.low < alone["after"].change.interval.low
    for name in ("before", "TF-IDF"):  # a product of more columns may add its terms in another order
        assert chosen[name].interval == pytest.approx(alone[name].interval, rel=1e-12)


def test_rows_that_share_a_sentence_count_as_one_unit():
    first = [f"{row // 3}" for row in range(60)]
    held_out = HeldOut(Examples({"a": first, "b": TEXTS[:60]}))
    assert held_out.units.tolist() == list(range(20)), "of queries"
    scored = HeldOut(Examples({"a": first, "b": TEXTS[:60]}, np.arange(60, dtype=np.float32)))
    assert scored.units.tolist() == (np.arange(60) // 3).tolist(), "of rows"


def test_a_resumed_run_has_the_values_of_all_its_evaluations(encoder, tmp_path):
    held_out = HeldOut(Examples({"a": TEXTS[:20], "b": TEXTS[60:80]}))
    for steps in ((0, 2, 4, 6), (4,)):  # killed after step 6, resumed at step 2
        evaluations = Evaluations(held_out, tmp_path)
        for step in steps:
            evaluations.score(encoder)
            evaluations.keep(step)
    assert sorted(path.stem for path in (tmp_path / "held_out").iterdir()) == ["2", "4"]
    np.testing.assert_array_equal(evaluations.checkpoints()[0], held_out.values(encoder))
    others = HeldOut(Examples({"a": TEXTS[:19], "b": TEXTS[60:79]}))
    with pytest.raises(MismatchError, match="scores of other rows"):
        Evaluations(others, tmp_path).checkpoints()
