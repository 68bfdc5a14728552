"""The un-tuned encoder that ships with the package: whole, small, found by name offline, and better when whitened."""

import jax.numpy as jnp
import numpy as np
import pytest

from eval.aggregates import sts_scores
from jaxwhiten import Encoder, Whitening, normalize
from jaxwhiten.datasets import load_sts
from jaxwhiten.errors import ModelError
from jaxwhiten.models import folders, resolve_folder
from jaxwhiten.whitening.whitening import WhiteningWarning
from train.masked import load_masked_lm

NAME = "jaxwhiten-tiny"


def test_it_is_small_and_has_a_card():
    folder = resolve_folder(NAME)
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sum(files.values()) <= 12_000_000
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= set(files)
    card = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("Wikipedia", "tokens seen", "hours", "held-out loss"):
        assert word in card


def test_damaged_weights_are_refused(monkeypatch):
    module, inner, _ = folders._PACKAGED[NAME]
    monkeypatch.setitem(folders._PACKAGED, NAME, (module, inner, "0" * 64))
    with pytest.raises(ModelError, match="sha256"):
        resolve_folder(NAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("the united [MASK] of america .", "states"),
        ("it is one [MASK] the largest cities in the world .", "of"),
        ("in the 19th [MASK] , the town grew .", "century"),
    ],
)
def test_it_guesses_masked_words(sentence, word):
    from tokenizers import Tokenizer

    model, folder, has_head = load_masked_lm(NAME)
    assert has_head
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = jnp.array([tokenizer.encode(sentence).ids])
    place = jnp.argwhere(ids[0] == tokenizer.token_to_id("[MASK]"))
    scores = model(ids, jnp.ones_like(ids), place)
    best = [tokenizer.id_to_token(int(i)) for i in np.argsort(-np.asarray(scores)[0, 0])[:2]]
    assert word in best, best


def test_whitening_raises_the_score_of_the_sample():
    pairs = load_sts("sts_sample").splits["test"]
    encoder = Encoder.from_pretrained(NAME, pooling="first_last_avg")
    x = encoder.encode([*pairs.sentence1, *pairs.sentence2])
    with pytest.warns(WhiteningWarning, match="780 rows"):
        whitened = normalize(Whitening(n_components=128).fit(x).transform(x))

    def score(vectors):
        similarity = np.sum(normalize(vectors[: len(pairs)]) * normalize(vectors[len(pairs) :]), axis=1)
        return sts_scores(similarity, pairs.score, pairs.subset)["wmean"]

    assert score(whitened) > score(x) + 1
