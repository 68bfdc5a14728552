"""Every door where vectors meet refuses vectors of another encoder, head, prompt or length, and takes its own.

A door takes the encoder of what is there, and another one; the doors of the shell take their folders.
"""

import copy
import functools
import itertools
import warnings

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening
from jaxwhiten.codes import Int8, SpectrumCode, load_fitted
from jaxwhiten.errors import MismatchError
from jaxwhiten.runners.parts import EmbedPlan, Parts
from jaxwhiten.search import build_index, semantic_search
from jaxwhiten.search.text import view_for
from jaxwhiten.space import SpaceWarning
from jaxwhiten.views import fit
from tests.sentences import generated
from tests.tiny import write_model

TEXTS = generated(80, seed=5)
NEW = ["a man plays", "two dogs run"]
PROMPTS = {"query": "water ", "document": "a man "}


def made(folder, prompts=PROMPTS, **how):
    return Encoder.from_pretrained(folder, **{"pooling": "mean", "max_length": 32, "prompts": prompts, **how})


@pytest.fixture(scope="module")
def encoders(tiny_model, tmp_path_factory):
    """The encoder of what is there, and others, each of which differs in one field."""
    weights = write_model(tmp_path_factory.mktemp("other") / "model", seed=1)
    base = made(tiny_model)
    found = {"base": base, "weights": made(weights), "pooling": made(tiny_model, pooling="cls")}
    with warnings.catch_warnings(action="ignore"):  # of few rows
        found["head"] = base.with_whitening(base.whiten(TEXTS, k=32).view.head.whitening.with_params(gamma=0.3))
    found["prompt"] = made(tiny_model, {**PROMPTS, "document": "two dogs "})
    found["prompt of queries"] = made(tiny_model, {**PROMPTS, "query": "two dogs "})
    return found | {"max_length": made(tiny_model, max_length=8)}


@functools.lru_cache
def documents_of(encoder):
    return encoder.encode_document(TEXTS)


def index_of(encoder):
    return build_index(documents_of(encoder), "jax", documents=TEXTS)


@functools.lru_cache
def summary_of(encoder):
    return encoder.documents.moments(TEXTS)


def moments_of(encoder):
    return copy.deepcopy(summary_of(encoder))


@functools.lru_cache
def fitted(encoder):
    return Whitening.from_moments(moments_of(encoder), n_components=8)


def coded(encoder):
    return SpectrumCode(bytes=4).fit(moments_of(encoder))


def parts(there, other, folder):
    Parts(folder / "shards", EmbedPlan.of(there, [])).begin(there)
    return Parts(folder / "shards", EmbedPlan.of(other, []))


DOCUMENTS = {
    "build_index(space=)": lambda a, b, _: build_index(b.encode_document(NEW), "jax", space=a.documents.space),
    "Moments.merge": lambda a, b, _: moments_of(a).merge(moments_of(b)),
    "Encoder.with_whitening": lambda a, b, _: b.with_whitening(fitted(a)),
    "Encoder.with_code": lambda a, b, _: b.with_code(coded(a)),
    "Encoder.whiten(vectors)": lambda a, b, _: b.whiten(documents_of(a)),
    "fit(moments)": lambda a, b, _: fit(b.view, moments_of(a), n_components=8),
    "Parts, resumed": parts,
}
QUERIES = {
    "Index.search": lambda a, b, _: index_of(a).search(b.encode_query(NEW), 2),
    "view_for": lambda a, b, _: view_for(index_of(a), b.view),
}


def half(x):
    """Codes that have no whitening, as `precision="int8"` gives them."""
    return Int8().fit(x).encode(x)


def of_file(fitted, folder):
    fitted.save(folder / "fitted")
    return load_fitted(folder / "fitted")


def index_of_vectors(x, **options):
    return build_index(x, "jax", documents=TEXTS, **options)


# Doors of vectors, documents of an encoder and others: to add rows needs their prompt, to compare them does not.
ROWS = {
    "Whitening.partial_fit": lambda a, b, _: Whitening().partial_fit(a).partial_fit(b),
    "Int8.partial_fit": lambda a, b, _: Int8().fit(a).partial_fit(b),
    "Moments.update": lambda a, b, _: Moments().update(a).update(b),
    "Index.add": lambda a, b, _: index_of_vectors(a).add(b, documents=TEXTS),
    "build_index(codes=)": lambda a, b, _: index_of_vectors(b, codes=SpectrumCode(bytes=4).fit(a)),
}
VECTORS = {
    "semantic_search": lambda a, b, _: semantic_search(a, b, 1),
    "Whitening.fit": lambda a, b, _: Whitening().fit([*a, *b]),
    "Whitening.transform, loaded": lambda a, b, folder: of_file(Whitening().fit(a), folder).transform(b),
    "SpectrumCode.encode, loaded": lambda a, b, folder: of_file(SpectrumCode(bytes=4).fit(a), folder).encode(b),
    "Code.scores of codes": lambda a, b, _: Int8().fit(a).scores(a, half(b)),
    "Index.search of stored codes": lambda a, b, _: index_of_vectors(half(a), codes="int8").search(b, 1),
    "Index.hits": lambda a, b, _: index_of_vectors(a).hits(b, 1),
}
FIELDS = {
    "weights": "expected model",
    "pooling": "expected pooling",
    "head": "expected (pooling|another head|other weights, tokenizer or head)",
    "prompt": "expected prompts?=",
    "max_length": "expected max_length",
}
# Every door with two fields, and two doors with every field.
PAIRS = [*itertools.product([*DOCUMENTS, *QUERIES], ("weights", "prompt"))]
PAIRS += itertools.product(("Index.search", "Encoder.with_whitening"), ("pooling", "head", "max_length"))


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.WhiteningWarning")
@pytest.mark.parametrize(("door", "field"), PAIRS)
def test_another_space_is_refused_at_every_door_and_the_same_one_is_taken(encoders, door, field, tmp_path):
    # A whitening of sentences of another length serves: it only warns.
    kinds = (MismatchError, SpaceWarning) if field == "max_length" else MismatchError
    enter = (DOCUMENTS | QUERIES)[door]
    with pytest.raises(kinds, match=FIELDS[field]):
        enter(encoders["base"], encoders[field], tmp_path)
    if field == "weights":
        (tmp_path / "same").mkdir()
        enter(encoders["base"], made(encoders["base"].name), tmp_path / "same")


@pytest.mark.parametrize("door", QUERIES)
def test_queries_need_the_prompt_of_queries_and_documents_do_not(encoders, door, tmp_path):
    other = encoders["prompt of queries"]
    with pytest.raises(MismatchError, match="expected prompts="):
        QUERIES[door](encoders["base"], other, tmp_path)
    index_of(encoders["base"]).add(other.encode_document(NEW), documents=NEW)


@pytest.fixture(scope="module")
def vectors(encoders, tiny_model):
    """Vectors of an encoder, of the same, of others, and of unknown ones."""
    found = {"there": documents_of(encoders["base"]), "same": made(tiny_model).encode_document(TEXTS)}
    found |= {"queries": encoders["base"].encode_query(TEXTS), "weights": documents_of(encoders["weights"])}
    return found | {"unknown": np.array(found["weights"])}


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.WhiteningWarning", "ignore::jaxwhiten.space.SpaceWarning")
@pytest.mark.parametrize("other", ["same", "queries", "weights", "unknown"])
@pytest.mark.parametrize("door", [*ROWS, *VECTORS])
def test_vectors_of_another_space_are_refused_at_every_door(vectors, door, other, tmp_path):
    enter = (ROWS | VECTORS)[door]
    if other == "weights" or (other == "queries" and door in ROWS):
        enter(vectors["unknown"], vectors[other], tmp_path)
        with pytest.raises(MismatchError, match="space of"):
            enter(vectors["there"], vectors[other], tmp_path)
    else:
        enter(vectors["there"], vectors[other], tmp_path)
