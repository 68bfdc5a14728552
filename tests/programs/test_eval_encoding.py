"""Poolings by the names a config gives them, and the moments of NLI rows."""

import pytest

from configs import sample
from eval import encoding
from eval import sts as program
from eval.poolings import fit_idf
from eval.runs import Run
from jaxwhiten import Encoder
from jaxwhiten.errors import InputError
from tests.tiny import SENTENCES, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-model")


def test_names_stand_for_what_model_and_sentences_make_of_them(model):
    names = encoding.pooling_names("last_avg, idf,layers:*,layers:1+2,mean")
    assert names == ("mean", "idf", "layers:*", "layers:1+2")
    encoder = Encoder.from_pretrained(model, pooling=encoding.first_plain(names))
    poolings = encoding.expand_poolings(names, encoder, SENTENCES)
    pairs = [f"layers:{i}+{j}" for i in range(3) for j in range(i + 1, 3)]
    assert poolings == ("mean", fit_idf(encoder, SENTENCES), *pairs)
    assert encoding.first_plain(("idf", "layers:*")) == "mean"
    with pytest.raises(InputError, match="Did you mean 'mean'"):
        encoding.pooling_names("maen")


def test_eval_sts_takes_them(model, tmp_path):
    config = sample.get_config()
    changes = {"poolings": "idf,layers:*", "whitening": "none", "bootstrap": 0, "ks": "0", "out": str(tmp_path)}
    config.update({"model": str(model), **changes})
    program.main(config)
    poolings = [row.pooling for row in Run.load(tmp_path).rows]
    assert poolings[0].startswith("idf:")
    assert poolings[1:] == [f"layers:{i}+{j}" for i in range(3) for j in range(i + 1, 3)]
