"""config.json from strangers: a configuration within limits, or a ModelError, before anything is allocated."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxwhiten.errors import ModelError
from jaxwhiten.models import EncoderConfig, folders, loading
from jaxwhiten.models.folders import FAMILIES
from tests.fuzz.common import ODD, attempt, fuzz, json_text
from tests.tiny import tiny_config

DECODER = {"rotary_theta": 1e4, "local_window": 8, "local_layers": (1,)}
CHANGES = {
    "bert": {},
    "roberta": {"position_offset": 1},
    "xlm-roberta": {"position_offset": 1},
    "electra": {"pooler": False},
    "distilbert": {"pooler": False, "type_vocab_size": 0},
    "albert": {"layer_groups": 1},
    "mpnet": {"relative_buckets": 32, "position_offset": 2},
    "modernbert": {"learned_positions": False, "rotary_theta": 1e4, "local_rotary_theta": 1e4, "local_window": 8},
    "nomic_bert": {"learned_positions": False, "rotary_theta": 1e4},
    "nomic_bert_moe": {"rotary_theta": 1e4, "experts": 4, "experts_taken": 2, "expert_layers": (1,)},
    "gemma3_text": DECODER | {"local_rotary_theta": 1e3, "query_scalar": 8.0},
    **{name: {"rotary_theta": 1e4} for name in ("eurobert", "gte", "new", "jina_embeddings_v3")},
    "t5": {"relative_buckets": 32},
}


def written(name):
    return FAMILIES[name].config_json(tiny_config(model_type=name, **CHANGES.get(name, DECODER)))


SIZES = st.sampled_from([1, 2, 3, 8, 512, 513, 16_384, 131_072, 5_000_000, 10**9, 10**12, 10**30])


@fuzz()
@given(data=st.data())
def test_damaged_config(tmp_path, data):
    name = data.draw(st.sampled_from(sorted(FAMILIES)))
    (tmp_path / "config.json").write_bytes(data.draw(json_text(written(name), ODD | SIZES)))
    config, _ = attempt(lambda: folders.load_config(tmp_path), names="config.json")
    if config is not None:
        assert isinstance(config, EncoderConfig)
        assert config.parameters <= 40_000_000_000
        assert 0 < config.layer_norm_eps < 1
        again = FAMILIES[config.model_type].config_json(config)
        (tmp_path / "config.json").write_text(json.dumps(again))
        assert folders.load_config(tmp_path) == config


@fuzz(0.04)
@given(data=st.data())
def test_what_is_read_can_be_built(tmp_path, data):
    """Shapes only: an activation or a size that no layer takes shows here."""
    name = data.draw(st.sampled_from(sorted(FAMILIES)))
    (tmp_path / "config.json").write_bytes(data.draw(json_text(written(name))))
    config, _ = attempt(lambda: folders.load_config(tmp_path), names="config.json")
    if config is not None and config.num_layers <= 8:
        attempt(lambda: loading.abstract(config, "float32", False))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_million_million_parameters_are_refused_before_allocating(tmp_path, name):
    raw = written(name)
    keys = {field: key if isinstance(key, str) else key[0] for field, key in FAMILIES[name].keys.items()}
    raw |= {keys["vocab_size"]: 5_000_000, keys["hidden_size"]: 16_384, keys["num_layers"]: 512}
    raw |= {keys["num_heads"]: 64}
    if "intermediate_size" in keys:
        raw[keys["intermediate_size"]] = 131_072
    raw.pop("layer_types", None)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    tracemalloc.start()
    try:
        if name == "albert":  # its layers share their weights: never that many
            raw[keys["embedding_size"]] = 16_384
            (tmp_path / "config.json").write_text(json.dumps(raw))
        with pytest.raises(ModelError, match=r"config\.json.*parameters"):
            loading.load_model(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_norm_eps": 10**400}, "layer_norm_eps"),
        ({"initializer_range": float("inf")}, "initializer_range"),
    ],
)
def test_numbers_that_would_make_nan(tmp_path, change, message):
    (tmp_path / "config.json").write_text(json.dumps(written("bert") | change))
    with pytest.raises(ModelError, match=message):
        loading.abstract(folders.load_config(tmp_path), "float32", False)
