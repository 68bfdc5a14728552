"""`eval.mteb_encoder`: MTEB's own evaluator runs our encoders, on tasks built from our loaders."""

from types import SimpleNamespace

import numpy as np
import pytest

from eval.data import load_sts
from jaxwhiten import Encoder, Whitening, metrics
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import Pairs
from tests.conftest import slow_but
from tests.tiny import SENTENCES

pytest.importorskip("mteb")
from eval.mteb_encoder import MTEBEncoder

# The task that scores are published for, not its second version.
pytestmark = pytest.mark.filterwarnings("ignore:The task 'STSBenchmark' is superseded")

MTEB_NAMES = {name: name for name in ("STS12", "STS13", "STS14", "STS15", "STS16")} | {"STS-B": "STSBenchmark"}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def with_cls(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="cls", max_length=32)


@pytest.fixture(scope="module")
def whitening(encoder):
    rng = np.random.default_rng(0)
    return Whitening(n_components=8).fit(rng.normal(size=(400, encoder.dimension)).astype(np.float32))


def offline(name, data_dir=None, step=1):
    """MTEB's own task with our loader's sentences and scores in the place of the download; and its test pairs.

    Both have every `step`-th pair: what is compared is two ways to score the same pairs.
    """
    import datasets
    import mteb

    pairs = load_sts(name, data_dir).splits["test"]
    columns = (pairs.sentence1, pairs.sentence2, pairs.score, pairs.subset)
    pairs = Pairs(*(column[::step] for column in columns))
    task = mteb.get_task(MTEB_NAMES.get(name, "STSBenchmark"))
    columns = {"sentence1": pairs.sentence1, "sentence2": pairs.sentence2, "score": pairs.score.tolist()}
    task.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(columns))
    task.data_loaded = True
    return task, pairs


def score(model, task):
    """MTEB's main score in points."""
    import mteb

    result = mteb.evaluate(model, task, cache=None, encode_kwargs={"show_progress_bar": False}, co2_tracker=False)
    return 100 * result[0].scores["test"][0]["main_score"]


def ours(encoder, pairs, whitening=None):
    left, right = encoder.encode(pairs.sentence1), encoder.encode(pairs.sentence2)
    if whitening is not None:
        left, right = whitening.transform(left), whitening.transform(right)
    return 100 * metrics.spearman(metrics.cosine_pairs(left, right), pairs.score)


@pytest.mark.parametrize("whitened", [False, True])
def test_mteb_evaluates_a_model_and_gives_our_score(encoder, whitening, whitened):
    task, pairs = offline("sts_sample")
    used = whitening if whitened else None
    assert score(MTEBEncoder(encoder, used), task) == pytest.approx(ours(encoder, pairs, used), abs=0.01)


def test_texts_are_encoded_in_the_order_of_the_batches(encoder, with_cls, whitening):
    model = MTEBEncoder(with_cls, whitening)
    batches = [{"text": SENTENCES[:3]}, {"text": SENTENCES[3:5]}]
    found = model.encode(batches, task_metadata=None, hf_split="test", hf_subset="default", prompt_type=None)
    expected = whitening.transform(encoder.encode(SENTENCES[:5], pooling="cls"))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_results_of_another_setting_are_never_taken_from_the_cache(encoder, with_cls, whitening):
    prompted = Encoder.from_pretrained(encoder.name, pooling="mean", max_length=32, prompts=PROMPTS)
    settings = [
        MTEBEncoder(encoder),
        MTEBEncoder(prompted),
        MTEBEncoder(with_cls),
        MTEBEncoder(encoder, whitening),
        MTEBEncoder(encoder, whitening.with_params(n_components=4)),
    ]
    metas = [model.mteb_model_meta for model in settings]
    assert len({meta.revision for meta in metas}) == len(metas)
    assert MTEBEncoder(encoder, whitening).mteb_model_meta.revision == metas[3].revision
    assert [meta.embed_dim for meta in metas[-2:]] == [8, 4]


def test_a_coded_encoder_is_scored_at_its_bytes(encoder):
    """Documents are what their codes stand for, queries floats; other bytes are another revision."""
    rows = np.random.default_rng(0).normal(size=(400, encoder.dimension)).astype(np.float32)
    coded = [encoder.with_code(SpectrumCode(bytes=size).fit(rows)) for size in (8, 4)]
    model = MTEBEncoder(coded[0])
    assert model.mteb_model_meta.experiment_kwargs["bytes"] == "8"
    assert model.mteb_model_meta.revision != MTEBEncoder(coded[1]).mteb_model_meta.revision
    batches, code = [{"text": SENTENCES[:5]}], coded[0].head.code
    queries = model.encode(batches, task_metadata=None, hf_split="test", hf_subset="default", prompt_type="query")
    documents = model.encode(batches, task_metadata=None, hf_split="test", hf_subset="default", prompt_type="document")
    np.testing.assert_array_equal(queries, encoder.encode(SENTENCES[:5]))
    np.testing.assert_array_equal(documents, code.decode(coded[0].encode(SENTENCES[:5])))
    np.testing.assert_array_equal(model.encode(batches), documents)
    assert model.mteb_model_meta.embed_dim == documents.shape[1]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(queries, documents, atol=1e-4)


PROMPTS = {"query": "Find: ", "passage": "Text: ", "STS": "Compare: ", "Retrieval-query": "Ask: ", "SciFact": "Claim: "}


@pytest.mark.parametrize(
    ("task", "role", "prompt"),
    [
        (None, "document", "Text: "),
        (("STS12", "STS"), None, "Compare: "),
        (("NFCorpus", "Retrieval"), "query", "Ask: "),
        (("SciFact", "Retrieval"), "query", "Claim: "),
    ],
)
def test_texts_get_the_folders_own_prompts(tiny_model, task, role, prompt):
    from mteb.types import PromptType

    encoder = Encoder.from_pretrained(
        tiny_model, pooling="mean", max_length=32, prompts=PROMPTS, default_prompt_name="STS"
    )
    about = {"task_metadata": task and SimpleNamespace(name=task[0], type=task[1])}
    about["prompt_type"] = role and PromptType(role)
    found = MTEBEncoder(encoder).encode([{"text": SENTENCES[:4]}], hf_split="test", hf_subset="default", **about)
    np.testing.assert_allclose(found, encoder.encode([prompt + text for text in SENTENCES[:4]], prompt=""), atol=1e-5)


@pytest.mark.parametrize("name", slow_but(MTEB_NAMES, "STS16"))
def test_real_weights(name, minilm, real_data):
    encoder = Encoder.from_pretrained(minilm, pooling="mean")
    task, pairs = offline(name, real_data, step=5)
    assert score(MTEBEncoder(encoder), task) == pytest.approx(ours(encoder, pairs), abs=0.01)
