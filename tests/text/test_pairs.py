"""Pairs against the tokenizers library's own, cut and uncut."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from jaxwhiten.errors import InputError
from jaxwhiten.text import BulkTokenizer
from tests.tiny import SENTENCES, write_tokenizer

VOCAB = 200
TEXTS = [*SENTENCES, "Short. [SEP] " + " ".join(SENTENCES), " ".join(reversed(SENTENCES))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("max_length", [5, 17])
def test_pairs_are_those_of_the_tokenizers_library(folder, max_length):
    first, second = (side.ravel() for side in np.indices((len(TEXTS), len(TEXTS))))
    pairs = [(TEXTS[i], TEXTS[j]) for i, j in zip(first, second, strict=True)]
    found = BulkTokenizer(folder, max_length, VOCAB).pairs(pairs)
    peer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    peer.enable_truncation(max_length, strategy="longest_first")
    rows = peer.encode_batch(pairs)
    with pytest.raises(InputError, match="3 special tokens"):
        BulkTokenizer(folder, 4, VOCAB).pairs(pairs[:1])
    np.testing.assert_array_equal(found.lengths, [len(row.ids) for row in rows])
    np.testing.assert_array_equal(found.flat % VOCAB, np.concatenate([row.ids for row in rows]))
    np.testing.assert_array_equal(found.flat // VOCAB, np.concatenate([row.type_ids for row in rows]))
