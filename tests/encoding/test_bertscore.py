"""BERTScore against its definition, token by token, and against the package `bert_score` where it is installed."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.encoding.bertscore import bert_score, read_baseline
from jaxwhiten.errors import DataError, InputError
from tests.tiny import SENTENCES

CANDIDATES = [*SENTENCES[:6], "", "short", SENTENCES[-1]]
REFERENCES = [*SENTENCES[1:7], "Short.", "", SENTENCES[-1]]


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=64)


def by_definition(encoder, candidates, references, layer, idf):
    """Section 3 of the paper, one token at a time, on the hidden states of one text at a time."""
    tokenizer, model = encoder.tokenizer, encoder.model()
    holding = [set(tokenizer([text]).flat.tolist()) for text in references]

    def read(text):
        ids = tokenizer([text]).flat
        row = jnp.pad(jnp.asarray(ids), (0, 48 - len(ids)))[None]
        states = model(row, (jnp.arange(48) < len(ids)).astype(jnp.int32)[None]).hidden_states[layer]
        states = np.asarray(states[0], np.float64)[: len(ids)]
        weights = [1.0] * len(ids)
        if idf:
            seen = [sum(int(token) in ids for ids in holding) for token in ids]
            weights = [np.log((len(references) + 1) / (count + 1)) for count in seen]
        weights[0] = weights[-1] = 0.0  # [CLS] and [SEP]
        return states / np.linalg.norm(states, axis=1, keepdims=True), weights

    def matched(x, weights, y):
        return sum(w * max(float(a @ b) for b in y) for a, w in zip(x, weights, strict=True)) / sum(weights)

    rows = []
    for candidate, reference in zip(candidates, references, strict=True):
        (x, of_x), (y, of_y) = read(candidate), read(reference)
        if not sum(of_x) or not sum(of_y):
            rows.append([0.0] * 3)
            continue
        p, r = matched(x, of_x, y), matched(y, of_y, x)
        rows.append([p, r, 2 * p * r / (p + r)])
    return np.array(rows)


@pytest.mark.parametrize(("layer", "idf"), [(3, False), (2, True), (0, True)])
def test_scores_are_those_of_the_definition(encoder, layer, idf):
    found = np.stack(bert_score(encoder, CANDIDATES, REFERENCES, layer=layer, idf=idf), axis=1)
    np.testing.assert_allclose(found, by_definition(encoder, CANDIDATES, REFERENCES, layer, idf), atol=2e-6)
    assert (found[6:8] == 0).all(), "an empty text"
    np.testing.assert_allclose(found[8], 1.0, atol=1e-6)


def test_a_baseline_becomes_zero_and_a_perfect_match_stays_one(encoder):
    plain = np.stack(bert_score(encoder, CANDIDATES, REFERENCES), axis=1)
    scaled = np.stack(bert_score(encoder, CANDIDATES, REFERENCES, baseline=[0.2, 0.3, 0.25]), axis=1)
    np.testing.assert_allclose(scaled, (plain - [0.2, 0.3, 0.25]) / [0.8, 0.7, 0.75], atol=1e-6)


def test_scores_equal_those_of_the_package(encoder, tiny_model):
    package = pytest.importorskip("bert_score")
    candidates, references = CANDIDATES[:6], REFERENCES[:6]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = package.score(
            candidates, references, model_type=str(tiny_model), num_layers=2, idf=True, device="cpu", nthreads=0
        )
    found = bert_score(encoder, candidates, references, layer=2, idf=True)
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=2e-6)


def test_a_baseline_file_has_a_line_for_each_layer(tmp_path):
    path = tmp_path / "en.tsv"
    path.write_text("LAYER,P,R,F\n0,0.1,0.2,0.3\n1,0.4,0.5,0.6\n")
    assert read_baseline(path, 1) == [0.4, 0.5, 0.6]
    with pytest.raises(DataError, match="no line for layer 2"):
        read_baseline(path, 2)
    path.write_text("1,0.4,x\n")
    with pytest.raises(DataError, match=r"not a baseline file, LAYER,P,R,F"):
        read_baseline(path, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"references": REFERENCES[:2]}, "9 candidates for 2 references"),
        ({"layer": 4}, "layer is 4; .* has 0, the embeddings, to 3"),
        ({"baseline": [0.1, 0.2]}, "three numbers below 1"),
        ({"candidates": [], "references": []}, "0 candidates"),
    ],
)
def test_mistakes_are_named(encoder, arguments, message):
    given = {"candidates": CANDIDATES, "references": REFERENCES, **arguments}
    with pytest.raises(InputError, match=message):
        bert_score(encoder, **given)
