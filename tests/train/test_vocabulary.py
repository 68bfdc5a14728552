"""WordPiece vocabularies: the same on every run, read alike by transformers and here."""

import pytest

from jaxwhiten.text.tokenization import BulkTokenizer
from tests.tiny import SENTENCES
from train.vocabulary import save_wordpiece, train_wordpiece

TEXT = SENTENCES * 3


def train(size=150, **settings):
    return train_wordpiece(lambda: iter([TEXT[:7], TEXT[7:]]), size, **{"alphabet": 40, **settings})


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
