"""Whole-word masking: whole words, the right shares, nothing special touched, everything decided by the generator."""

import numpy as np
import pytest

from jaxwhiten.errors import InputError, ModelError
from tests.tiny import SENTENCES
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


def test_shares_of_what_becomes_of_the_chosen():
    ids = blocks(rows=4000)
    out = masked(ids)
    chosen = out["weights"] > 0
    after, before = np.take_along_axis(out["input_ids"], out["positions"], 1)[chosen], out["targets"][chosen]
    assert np.mean(after == 4) == pytest.approx(0.8, abs=0.01)
    assert np.mean(after == before) == pytest.approx(0.1 + 0.1 / (VOCAB - 5), abs=0.01)
    random = after[(after != 4) & (after != before)]
    assert set(random) == set(range(5, VOCAB))


def test_the_generator_decides_everything():
    ids = blocks(rows=20)
    one, same, other = masked(ids), masked(ids), masked(ids, seed=2)
    for name in one:
        np.testing.assert_array_equal(one[name], same[name])
    assert (one["positions"] != other["positions"]).any()


def test_a_block_that_begins_inside_a_word():
    ids = np.array([[2, 45, 46, 10, 47, 3, 50, 11, 12, 13]], np.int32)
    for seed in range(30):
        out = masked(ids, seed, share=0.5)
        chosen = set(out["positions"][out["weights"] > 0].tolist())
        for word in ({1, 2}, {3, 4}, {6}, {7}, {8}, {9}):
            assert word <= chosen or not word & chosen


# --- from tokenizers ------------------------------------------------------------------------------------------------


def write(folder, kind):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    special = ["<s>", "</s>", "<unk>", "<mask>"]
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    elif kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=100, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    )
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
def test_words_of_other_tokenizers(tmp_path, kind):
    tokenizer = write(tmp_path / kind, kind)
    rules = mask_rules(tmp_path / kind)
    encoding = tokenizer.encode("The committee rejected guitars")
    begins = [i for i, token in enumerate(encoding.ids) if rules.maskable[token] and not rules.continues[token]]
    words = [word for word in encoding.word_ids if word is not None]
    assert [encoding.word_ids[i] for i in begins] == sorted(set(words))
    assert not rules.maskable[[tokenizer.token_to_id(name) for name in ("<s>", "</s>", "<mask>")]].any()
    assert rules.mask_id == tokenizer.token_to_id("<mask>")


def test_wordpiece_rules(tiny_model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    rules = mask_rules(tiny_model, share=0.2)
    names = [tokenizer.id_to_token(i) for i in range(len(rules.maskable))]
    assert [name for name, ok in zip(names, rules.maskable, strict=True) if not ok] == names[:5]
    assert rules.continues.tolist() == [name.startswith("##") for name in names]
    assert rules.places(100) == 20


def test_tokenizers_that_cannot_be_masked_are_refused(tmp_path, tiny_model):
    write(tmp_path / "words", "WordLevel")
    with pytest.raises(ModelError, match="WordLevel tokenizer does not mark where words begin"):
        mask_rules(tmp_path / "words")
    text = (tiny_model / "tokenizer.json").read_text().replace("[MASK]", "[OTHER]")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match="no mask token"):
        mask_rules(tmp_path / "none")


@pytest.mark.parametrize("shares", [{"share": 1.0}, {"masked": 0.8, "random": 0.3}])
def test_shares_that_are_none(shares):
    with pytest.raises(InputError, match="Shares to mask"):
        rules(**shares)
