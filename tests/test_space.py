"""Two spaces: which fields are compared for which role, what a message says, and vectors that know their space."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from jaxwhiten import Encoder, Space
from jaxwhiten.codes import Int8
from jaxwhiten.errors import MismatchError
from jaxwhiten.space import SpaceWarning, check_space, merged
from jaxwhiten.vectors import with_space

SPACE = Space(
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
    return Space.of({**SPACE.record(), **changes})


def refused(expected, got, **how):
    with pytest.raises(MismatchError) as error:
        check_space("W", expected, got, "fit another one", **how)
    assert not {"f1", "h1"} & set(str(error.value).split("'")), "nobody can read a fingerprint"
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "h2", "fingerprint": "f2", "model": "c/d"}, "expected model='a/b', got 'c/d'; expected another head"),
        ({"fingerprint": "f2"}, "expected other weights, tokenizer or head. Encode with the files of 'a/b'"),
        ({"head": "h2", "fingerprint": "f2"}, "expected another head, such as another whitening"),
        ({"prompt": "other: "}, "expected prompt='d: ', got 'other: '. Encode with prompt='d: ', or fit another one"),
        ({"code": "int8-384-c2"}, "expected code='int8-384-c1', got 'int8-384-c2'"),
        ({"prompt": "", "max_length": 32}, "expected max_length=64, got 32; expected prompt='d: ', got ''."),
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


def test_what_is_not_recorded_is_not_compared():
    known = Space.of({"model": "a/b", "fingerprint": "f1", "pooling": "mean", "max_length": 64, "n": 400})
    assert known.differences(SPACE) == SPACE.differences(known) == []
    assert known.differences(changed(pooling="cls", fingerprint="f2", head="h2")) == ["fingerprint", "pooling"]
    assert known.differences(Space(), strict=True) == ["fingerprint", "pooling", "max_length"]


def test_what_is_tolerated_is_a_warning_if_nothing_else_differs():
    with pytest.warns(SpaceWarning, match="expected max_length=64, got 32"):
        check_space("W", SPACE, changed(max_length=32), "fit another one", tolerated=("max_length",))
    assert "max_length=64" in refused(SPACE, changed(max_length=32, prompt=""), tolerated=("max_length",))
    check_space("W", SPACE, changed(model="moved", dtype="bfloat16", engine="openvino"), "fit another one")


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
    assert x.space == encoder.view.with_pooling("cls").with_prompt("a ").space
    assert (x.space.pooling, x.space.prompt) == ("cls", "a ")
    assert encoder.encode(["a man plays"], truncate_dim=5).space.dimension == 5
    assert encoder.encode("a man plays").space == encoder.view.space
    assert next(encoder.encode_stream(["a man plays"])).space == encoder.view.space


# Square, so that a transposed array has the same shape.
ROWS = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
CODE = Int8().fit(ROWS)
ORDER = np.array([2, 0, 1, 5, 4, 3])
KEPT = {
    "x[2]": lambda x: x[2],
    "x[1:4]": lambda x: x[1:4],
    "x[[2, 0]]": lambda x: x[[2, 0]],
    "x[mask]": lambda x: x[ORDER > 2],
    "iteration": lambda x: next(iter(x)),
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "concatenate": lambda x: np.concatenate([x[:2], x]),
}
LOST = {
    "columns": lambda x: x[:, :3],
    "part of a vector": lambda x: x[0][:3],
    "a mask of cells": lambda x: x[np.eye(6, dtype=bool)],
    "reshape": lambda x: x.reshape(12, 3),
    "concatenate of columns": lambda x: np.concatenate([x, x], axis=1),
    "concatenate with plain": lambda x: np.concatenate([x, np.asarray(x)]),
    "concatenate of another space": lambda x: np.concatenate([x, with_space(np.asarray(x), Space(model="c"), x.code)]),
    "where": lambda x: np.where(x > 0, x, 1),
    "sum": lambda x: x + x,
    "another dtype": lambda x: x.astype(np.float16),
    "turned": lambda x: x.T,
    "bits": lambda x: x.view(np.dtype(f"u{x.itemsize}")) ^ 1,
    "asarray": np.asarray,
}


@pytest.fixture(params=["vectors", "codes"])
def rows(request):
    """Square arrays of both kinds, which know their space."""
    if request.param == "vectors":
        return with_space(ROWS.copy(), SPACE)
    return with_space(np.array(CODE.encode(ROWS)), SPACE, CODE)


@pytest.mark.parametrize("name", KEPT)
def test_what_takes_whole_rows_keeps_their_space(rows, name):
    result = KEPT[name](rows)
    assert result.space == rows.space
    assert (result.code is None) == (rows.code is None)
    present = {row.tobytes() for row in np.asarray(rows)}
    assert all(row.tobytes() in present for row in np.atleast_2d(np.asarray(result)))


@pytest.mark.parametrize("name", LOST)
def test_everything_else_loses_the_space(rows, name):
    result = LOST[name](rows)
    assert getattr(result, "space", None) is getattr(result, "code", None) is None
    assert rows.space is not None


def test_vectors_of_encoders_that_are_equal_are_of_one_space(encoder):
    again = Encoder.from_pretrained(encoder.name, pooling="mean", max_length=32)
    assert np.concatenate([encoder.encode(["a man"]), again.encode(["a man"])]).space == encoder.view.space
    in_memory = Encoder.from_module(encoder.module, encoder.name, pooling="mean", max_length=32, name=encoder.name)
    assert in_memory.view.space == dataclasses.replace(again.view.space, engine="jax")


def test_a_head_has_a_fingerprint_of_its_own(encoder):
    other = encoder.with_pooling("cls").view
    assert (other.fingerprint, other.space.head == encoder.view.space.head) == (encoder.view.fingerprint, False)
    assert encoder.view.with_prompt("a ").space.head == encoder.view.space.head
