"""WordPiece vocabularies: the same on every run, read alike by transformers and here."""

import pytest

from jaxwhiten.text.tokenization import BulkTokenizer
from tests.tiny import SENTENCES
from train.vocabulary import SPECIAL_TOKENS, save_wordpiece, train_wordpiece

TEXT = SENTENCES * 3


def train(size=150, **settings):
    return train_wordpiece(lambda: iter([TEXT[:7], TEXT[7:]]), size, **{"alphabet": 40, **settings})


def test_special_tokens_characters_then_words():
    tokens = train()
    assert tuple(tokens[:5]) == SPECIAL_TOKENS
    assert len(tokens) == len(set(tokens)) == 150
    characters = [token for token in tokens[5:] if len(token) == 1]
    assert tokens[5 : 5 + len(characters)] == sorted(characters)
    assert set(characters) == {c for text in TEXT for c in text.lower() if not c.isspace()}
    assert [t for t in tokens if len(t.removeprefix("##")) > 1 and t not in SPECIAL_TOKENS]


def test_transformers_reads_the_same_ids(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = save_wordpiece(train(), tmp_path / "t", max_length=64)
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*SENTENCES, "Ünïcode wörds, 漢字 and 12,345.6!", "[MASK] stays"]
    batch = BulkTokenizer(folder, 64)(texts)
    for text, start, length in zip(texts, batch.starts, batch.lengths, strict=True):
        assert peer(text)["input_ids"] == batch.flat[start : start + length].tolist()
    assert (peer.mask_token, peer.pad_token_id, peer.model_max_length) == ("[MASK]", 0, 64)
    assert batch.flat[0] == 2
    assert BulkTokenizer(folder, 64).mask_token_id == 4
