"""Two spaces: which fields are compared for which role, what a message says, and vectors that know their space."""

import copy
import dataclasses
import gc
import pickle
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments, Whitening, build_index
from jaxwhiten.coded import with_code
from jaxwhiten.codes import Int8
from jaxwhiten.codes.fit import fit
from jaxwhiten.errors import MismatchError
from jaxwhiten.space import Known, SpaceWarning, VectorSpace, check_space, merged, with_space
from jaxwhiten.views.weights import Weights
from jaxwhiten.whitening import choose_gamma
from tests.sentences import generated
from tests.tiny import write_model

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
    known = VectorSpace.of({"model": "a/b", "fingerprint": "f1", "pooling": "mean", "max_length": 64, "n": 400})
    assert known.differences(SPACE) == SPACE.differences(known) == []
    assert known.differences(changed(pooling="cls", fingerprint="f2", head="h2")) == ["fingerprint", "pooling"]
    assert known.differences(VectorSpace(), strict=True) == ["fingerprint", "pooling", "max_length"]


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
    for plain in (x - 1, np.asarray(x), np.exp(x), x @ x.T, x.mean(axis=0)):
        assert type(plain) is np.ndarray
    assert isinstance(x.sum(), np.float32)
    assert encoder.encode(["a man plays"], truncate_dim=5).space.dimension == 5
    assert encoder.encode("a man plays").space == encoder.space()
    assert next(encoder.encode_stream(["a man plays"])).space == encoder.space()


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
    "reshape of one": lambda x: x[0].reshape(1, -1),
    "x.copy": lambda x: x.copy(),
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "astype": lambda x: x.astype(x.dtype, copy=True),
    "concatenate": lambda x: np.concatenate([x[:2], x]),
    "vstack": lambda x: np.vstack([x[0], x[1], x]),
    "take": lambda x: np.take(x, [1, 0], axis=0),
}
LOST = {
    "columns": lambda x: x[:, :3],
    "permuted columns": lambda x: x[:, ORDER],
    "part of a vector": lambda x: x[0][:3],
    "new last axis": lambda x: x[..., None],
    "cells": lambda x: x[[0, 1], [2, 3]],
    "T": lambda x: x.T,
    "reshape": lambda x: x.reshape(12, 3),
    "sort": lambda x: np.sort(x, axis=1),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "zeros_like": np.zeros_like,
    "concatenate of columns": lambda x: np.concatenate([x, x], axis=1),
    "concatenate with plain": lambda x: np.concatenate([x, np.asarray(x)]),
    "where": lambda x: np.where(x > 0, x, 1),
    "sum": lambda x: x + x,
    "bits": lambda x: x.view(np.dtype(f"u{x.itemsize}")) ^ 1,
    "asarray": np.asarray,
}


WRITES = {
    "x[0] =": lambda x, other: x.__setitem__(0, other[0]),
    "x *=": lambda x, other: x.__imul__(2),
    "out=": lambda x, other: np.add(other, 1, out=x, casting="unsafe"),
    "out= of a function": lambda x, other: np.take(other, [0] * 6, axis=0, out=x),
    "ufunc.at": lambda x, other: np.add.at(x, (0, 0), 1),
    "copyto": lambda x, other: np.copyto(x, other),
    "fill_diagonal": lambda x, other: np.fill_diagonal(x, 0),
    "x.sort": lambda x, other: x.sort(axis=1),
    "x.flat": lambda x, other: setattr(x, "flat", 0),
    "x.flat[0] =": lambda x, other: x.flat.__setitem__(0, 0),
    "x.T": lambda x, other: x.T.__setitem__(0, 0),
    "a row": lambda x, other: x[1].__setitem__(0, 0),
    "shape": lambda x, other: setattr(x, "shape", (12, 3)),
    "shuffle": lambda x, other: np.random.default_rng(0).shuffle(x),
}


@pytest.fixture(params=["vectors", "codes"])
def marked_rows(request):
    """Square arrays of both kinds, which know their space."""
    if request.param == "vectors":
        return with_space(ROWS.copy(), Known(SPACE))
    return with_code(CODE.encode(ROWS).view(np.ndarray).copy(), CODE, Known(SPACE))


def of_rows(result, x):
    """Whether an array consists of rows of another one."""
    rows = {row.tobytes() for row in np.asarray(x)}
    return all(row.tobytes() in rows for row in np.asarray(result).reshape(-1, x.shape[-1]))


@pytest.mark.parametrize("name", KEPT)
def test_what_takes_whole_rows_keeps_their_space(marked_rows, name):
    result = KEPT[name](marked_rows)
    assert result.space == marked_rows.space
    assert of_rows(result, marked_rows)


@pytest.mark.parametrize("name", LOST)
def test_everything_else_loses_the_space(marked_rows, name):
    assert getattr(LOST[name](marked_rows), "space", None) is None
    assert marked_rows.space is not None


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # NumPy 2.5
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_to_loses_its_space_in_every_view(marked_rows, name):
    view, copied, chosen = marked_rows[1:], marked_rows.copy(), marked_rows[ORDER]
    WRITES[name](marked_rows, np.zeros(marked_rows.shape, marked_rows.dtype))
    assert marked_rows.space is None
    assert view.space is None or name == "shape"
    assert copied.space == chosen.space == dataclasses.replace(SPACE, dimension=6)


def test_vectors_of_two_spaces_give_a_plain_array(encoder):
    x, y = (encoder.encode(["a man plays", "two dogs run"], pooling=pooling) for pooling in ("mean", "cls"))
    again = Encoder.from_pretrained(encoder.name, pooling="mean", max_length=32).encode(["a man plays"])
    assert type(np.concatenate([x, y])) is np.ndarray
    assert np.concatenate([x, again]).space == x.space
    assert x.astype(np.float64).space == x.astype(np.float16).space == x.space
    assert x.astype(np.int32).space is None


def test_vectors_know_their_space_without_holding_the_weights(encoder, tiny_model):
    x = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(["a man plays"])
    gc.collect()
    assert x.origin.weights._engine is None
    assert x.space == encoder.space()
    made = Encoder(encoder.model(), tiny_model, pooling="mean", max_length=32, name=encoder.name)
    y, expected = made.encode(["a man plays"]), made.space()
    del made
    assert y.space == expected


def test_vectors_of_replaced_weights_lose_the_fingerprint_alone(tmp_path):
    folder = write_model(tmp_path / "model", seed=1)
    x = Encoder.from_pretrained(folder, pooling="cls", max_length=32).encode(["a man plays"])
    write_model(tmp_path / "other", seed=2)
    shutil.copy(tmp_path / "other" / "model.safetensors", folder)
    assert (x.space.fingerprint, x.space.pooling) == (None, "cls")
    assert x.known_space(judged=True).tuned is None


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.WhiteningWarning")
def test_gamma_does_not_depend_on_what_became_of_the_vectors_or_of_their_encoder(tiny_model, monkeypatch):
    monkeypatch.setattr(Weights, "_measured", lambda self, head, engine: 2.0)  # not tuned
    texts = generated(80, seed=5)
    live = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)
    x, gamma = live.encode(texts), choose_gamma(live.moments(texts)).gamma
    dead = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32).encode(texts)
    forms = {"live": x, "dead": dead, "pickled": pickle.loads(pickle.dumps(x)), "rows": list(x)}
    forms |= {"joined": np.concatenate([x[:40], x[40:]]), "of two": np.vstack([x[:40], dead[40:]])}
    fits = {name: fit(Moments.of(rows), bytes=4).whitening.gamma for name, rows in forms.items()}
    fits["moments"] = fit(Moments().update(x[:40]).update(dead[40:])).whitening.gamma
    fits["whitening"] = choose_gamma(pickle.loads(pickle.dumps(Whitening().fit(x)))).gamma
    fits["index"] = build_index(pickle.loads(pickle.dumps(dead)), "jax", bytes=4).fitted.gamma
    assert gamma == 1.0
    assert fits == dict.fromkeys(fits, gamma)


def test_a_head_has_a_fingerprint_of_its_own(encoder):
    other = encoder.with_pooling("cls")
    assert (other.fingerprint, other.space().head == encoder.space().head) == (encoder.fingerprint, False)
    assert encoder.space(prompt="a ").head == encoder.space().head
