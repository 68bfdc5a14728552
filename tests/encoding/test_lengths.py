"""How many tokens of a text are read: as in sentence-transformers, for every family."""

import importlib.util
import itertools

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.models import load_config
from tests.conftest import slow_but
from tests.encoding.test_folder_settings import as_sentence_transformer, update
from tests.models.test_families import write
from tests.sentences import TEXTS
from tests.tiny import write_tokenizer

# Models of 24 positions: at most as many tokens by the table of their embeddings, or any number.
LIMITS = {"bert": 24, "roberta": 22, "xlm-roberta": 22, "electra": 24, "distilbert": 24, "albert": 24}
FAMILIES = (*LIMITS, "nomic_bert", "modernbert", "gte")
FAMILIES += ("qwen3", "gemma3_text", "eurobert", "jina_embeddings_v3", "ministral3", "t5", "t5, version 1.1", "mt5")
# Of sentence-transformers' file, and of the tokenizer's.
LENGTHS = {"longer": (96, 64), "shorter": (7, 64), "of the tokenizer": (None, 9), "both longer": (None, 96)}
LENGTHS |= {"neither": (None, None)}
# All of them for a table from 0, one from 2, and none; and for T5, whose files say how long its texts were.
CASES = [*itertools.product(("bert", "roberta", "qwen3", "t5"), LENGTHS)]
CASES += [(family, "longer") for family in FAMILIES if (family, "longer") not in CASES]
FAST = [("roberta", "longer"), ("bert", "shorter"), ("qwen3", "longer"), ("t5", "neither")]
LONG = [" ".join(TEXTS), *TEXTS[:2]]


def made(folder, family, lengths):
    write(folder, family, vocab_size=200)
    write_tokenizer(folder)
    as_sentence_transformer(folder)
    update(folder / "1_Pooling" / "config.json", word_embedding_dimension=load_config(folder).hidden_size)
    update(folder / "sentence_bert_config.json", max_seq_length=lengths[0])
    update(folder / "tokenizer_config.json", model_max_length=lengths[1])
    if "t5" in family:
        update(folder / "config.json", n_positions=24)
    return folder


@pytest.mark.parametrize(("family", "lengths"), slow_but(CASES, *FAST))
def test_the_longest_text_is_that_of_sentence_transformers(tmp_path, family, lengths):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    folder = made(tmp_path / "model", family, LENGTHS[lengths])
    peer = library.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    encoder = Encoder.from_pretrained(folder, engine="jax")
    limit = LIMITS.get(family, 1 << 20)
    assert encoder.max_length == min(peer.max_seq_length, limit)
    saved = Encoder.from_pretrained(encoder.save(tmp_path / "saved"), engine="jax")
    assert saved.max_length == encoder.max_length
    if lengths == "longer" and family not in LIMITS:  # beyond the positions that it was trained for
        expected = peer.encode(LONG, batch_size=1)
        np.testing.assert_allclose(encoder.encode(LONG), expected, atol=2e-5)
        if importlib.util.find_spec("openvino") is not None:
            other = Encoder.from_pretrained(folder, engine="openvino")
            np.testing.assert_allclose(other.encode(LONG), expected, atol=2e-5)
