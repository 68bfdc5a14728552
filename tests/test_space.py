"""Two spaces: which fields are compared for which role, what a message says, and vectors that know their space."""

import gc
import pickle

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import MismatchError
from jaxwhiten.space import SpaceWarning, VectorSpace, check_space, merged

SPACE = VectorSpace(
    model="a/b",
    dtype="float32",
    fingerprint="f1",
    head="h1",
    pooling="mean",
    prompt="d: ",
    prompts={"query": "q: ", "document": "d: "},
    max_length=64,
    dimension=384,
    code="int8-384-c1",
)


def changed(**changes):
    return VectorSpace.of({**SPACE.record(), **changes})


def refused(expected, got, **how):
    with pytest.raises(MismatchError) as error:
        check_space("W", expected, got, "fit another one", **how)
    assert not {"f1", "h1"} & set(str(error.value).split("'")), "nobody can read a fingerprint"
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "h2", "fingerprint": "f2", "model": "c/d"}, "expected model='a/b', got 'c/d'; expected another head"),
        ({"fingerprint": "f2", "model": "c/d"}, "expected model='a/b', got 'c/d'. Encode with model='a/b', or fit"),
        ({"fingerprint": "f2"}, "expected other weights, tokenizer or head. Encode with the files of 'a/b'"),
        (
            {"head": "h2", "fingerprint": "f2", "pooling": "cls"},
            "expected pooling='mean', got 'cls'. Encode with pooling",
        ),
        ({"head": "h2", "fingerprint": "f2"}, "expected another head, such as another whitening"),
        ({"prompt": "other: "}, "expected prompt='d: ', got 'other: '. Encode with prompt='d: ', or fit another one"),
        ({"max_length": 32}, "expected max_length=64, got 32"),
        ({"dimension": 16}, "expected dimension=384, got 16"),
        ({"code": "int8-384-c2"}, "expected code='int8-384-c1', got 'int8-384-c2'"),
        (
            {"prompt": "", "max_length": 32},
            "expected max_length=64, got 32; expected prompt='d: ', got ''.",
        ),
    ],
)
def test_the_fields_that_differ_are_named_with_what_to_do(changes, message):
    assert message in refused(SPACE, changed(**changes))


def test_queries_need_the_same_set_of_prompts_and_no_code():
    query = changed(prompt="q: ", code=None)
    assert SPACE.differences(query, role="query") == []
    assert SPACE.differences(query) == ["prompt"]
    other = changed(prompts={"query": "other: ", "document": "d: "})
    assert SPACE.differences(other) == []
    assert "expected prompts={'query': 'q: '" in refused(SPACE, other, role="query")


def test_files_of_earlier_versions_are_compared_by_what_they_say():
    old = VectorSpace.of({"model": "a/b", "fingerprint": "f1", "pooling": "mean", "max_length": 64, "n": 400})
    assert old.differences(SPACE) == SPACE.differences(old) == []
    assert old.differences(changed(head="h2")) == []
    assert old.differences(changed(pooling="cls", fingerprint="f2")) == ["fingerprint", "pooling"]
    assert VectorSpace().differences(SPACE) == SPACE.differences(VectorSpace()) == []
    assert old.differences(VectorSpace(), strict=True) == ["fingerprint", "pooling", "max_length"]


def test_what_is_tolerated_is_a_warning_if_nothing_else_differs():
    with pytest.warns(SpaceWarning, match="expected max_length=64, got 32"):
        check_space("W", SPACE, changed(max_length=32), "fit another one", tolerated=("max_length",))
    assert "max_length=64" in refused(SPACE, changed(max_length=32, prompt=""), tolerated=("max_length",))
    check_space("W", SPACE, changed(model="moved", dtype="bfloat16", engine="openvino", folder="/a"), "fit another one")


@pytest.mark.parametrize(("first", "second"), [(SPACE.record(), {"corpus": "a"}), ({"corpus": "a"}, SPACE.record())])
def test_moments_of_unknown_origin_take_the_fingerprint_away(first, second):
    with pytest.warns(SpaceWarning, match="no encoder is recorded"):
        assert merged("b", first, second) == {"corpus": "a"}
    assert merged("b", first, first) == first
    assert merged("b", {}, {}) == {}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


def test_vectors_know_their_space_until_they_are_computed_with(encoder):
    x = encoder.encode(["a man plays", "two dogs run"], pooling="cls", prompt="a ")
    assert x.space == encoder.space("cls", "a ")
    assert (x.space.pooling, x.space.prompt) == ("cls", "a ")
    for kept in (x[1:], x[0], x.copy(), x.astype(np.float16)):
        assert kept.space == x.space
    for plain in (x - 1, np.asarray(x), np.exp(x), x @ x.T, x.mean(axis=0), pickle.loads(pickle.dumps(x))):
        assert type(plain) is np.ndarray
    assert x[:, :5].space is None
    assert isinstance(x.sum(), np.float32)
    assert encoder.encode(["a man plays"], truncate_dim=5).space.dimension == 5
    assert encoder.encode("a man plays").space == encoder.space()


def test_vectors_do_not_keep_an_encoder(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    x = encoder.encode(["a man plays"])
    del encoder
    gc.collect()
    assert x.space is None


def test_a_head_has_a_fingerprint_of_its_own(encoder):
    other = encoder.with_pooling("cls")
    assert (other.fingerprint, other.space().head == encoder.space().head) == (encoder.fingerprint, False)
    assert encoder.space(prompt="a ").head == encoder.space().head
