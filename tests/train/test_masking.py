"""Whole-word masking: whole words, the right shares, nothing special touched, everything decided by the generator."""

import numpy as np
import pytest

from train.masking import MaskRules, mask_blocks, mask_rules

VOCAB = 60
SPECIAL, PIECES = [0, 1, 2, 3, 4], list(range(40, 60))  # 2 begins blocks, 3 ends passages, 4 is the mask


def rules(**shares):
    maskable, continues = np.ones(VOCAB, bool), np.zeros(VOCAB, bool)
    maskable[SPECIAL], continues[PIECES] = False, True
    return MaskRules(4, maskable, continues, **shares)


def blocks(rows=200, length=40, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB, (rows, length)).astype(np.int32)
    ids[rng.random(ids.shape) < 0.05] = 3
    ids[:, 0] = 2
    return ids


def words_of(row):
    """Positions of each word of a block, told in plain Python."""
    groups = []
    for position, token in enumerate(row):
        if token in SPECIAL:
            continue
        if groups and token in PIECES and groups[-1][-1] == position - 1:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def masked(ids, seed=1, **shares):
    return mask_blocks(ids, rules(**shares), np.random.default_rng(seed))


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_whole_words_up_to_the_share(share):
    ids = blocks()
    out = masked(ids, share=share)
    assert out["positions"].shape == (200, round(share * 40))
    for row in range(len(ids)):
        chosen = out["positions"][row][out["weights"][row] > 0].tolist()
        assert len(set(chosen)) == len(chosen)
        words = words_of(ids[row])
        masked_words = [word for word in words if word[0] in chosen]
        assert sorted(chosen) == sorted(position for word in masked_words for position in word)
        budget = round(share * sum(map(len, words)))
        assert len(chosen) <= budget
        assert budget - len(chosen) < max(map(len, words))


def test_targets_are_the_tokens_that_stood_there_and_nothing_else_changes():
    ids = blocks()
    out = masked(ids)
    np.testing.assert_array_equal(out["targets"], np.take_along_axis(ids, out["positions"], 1))
    changed = out["input_ids"] != ids
    allowed = np.zeros_like(changed)
    np.put_along_axis(allowed, out["positions"], out["weights"] > 0, axis=1)
    assert not (changed & ~allowed).any()
    assert not np.isin(out["targets"][out["weights"] > 0], SPECIAL).any()


# --- from tokenizers ------------------------------------------------------------------------------------------------


def test_wordpiece_rules(tiny_model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    rules = mask_rules(tiny_model, share=0.2)
    names = [tokenizer.id_to_token(i) for i in range(len(rules.maskable))]
    assert [name for name, ok in zip(names, rules.maskable, strict=True) if not ok] == names[:5]
    assert rules.continues.tolist() == [name.startswith("##") for name in names]
    assert rules.places(100) == 20
