"""Small real things made on the spot: a random BERT in Hugging Face files, with a trained WordPiece tokenizer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from jaxwhiten import POOLINGS
from jaxwhiten.models import EncoderConfig
from jaxwhiten.views import at_once
from tests.sentences import SENTENCES
from train.vocabulary import SPECIAL_TOKENS, train_wordpiece

# Poolings that take no parameters.
ALONE = tuple(name for name in POOLINGS if name not in ("layers", "ditto", "promptbert", "idf"))

# What `tiny_config` takes for each family, beside its sizes.
FAMILIES = {
    "bert": {},
    "roberta": {"model_type": "roberta", "pad_token_id": 1, "position_offset": 2, "type_vocab_size": 1},
    "distilbert": {"model_type": "distilbert", "type_vocab_size": 0, "pooler": False},
    "electra": {"model_type": "electra", "embedding_size": 16, "pooler": False},
    "albert": {"model_type": "albert", "embedding_size": 16, "layer_groups": 2, "hidden_act": "gelu_new"},
    "mpnet": {"model_type": "mpnet", "relative_buckets": 32, "position_offset": 2, "type_vocab_size": 0},
    "nomic_bert": {
        "model_type": "nomic_bert",
        "learned_positions": False,
        "pooler": False,
        "rotary_theta": 1000.0,
        "gated": True,
        "attention_bias": False,
        "feed_forward_bias": False,
        "hidden_act": "silu",
    },
    "gemma3_text": {
        "model_type": "gemma3_text",
        "num_layers": 3,
        "num_kv_heads": 2,
        "head_size": 10,
        "query_scalar": 20.0,
        "embedding_scale": 32**0.5,
        "type_vocab_size": 0,
        "pooler": False,
        "learned_positions": False,
        "embedding_norm": False,
        "pre_norm": True,
        "output_norms": True,
        "head_norm": True,
        "norm": "rms, 1 + w",
        "gated": True,
        "attention_bias": False,
        "feed_forward_bias": False,
        "hidden_act": "gelu_pytorch_tanh",
        "causal": True,
        "rotary_theta": 1e6,
        "local_rotary_theta": 1e4,
        "local_layers": (1, 2),
        "local_window": 3,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "layer_norm_eps": 1e-6,
    },
    "modernbert": {
        "model_type": "modernbert",
        "num_layers": 3,
        "learned_positions": False,
        "type_vocab_size": 0,
        "pooler": False,
        "rotary_theta": 160000.0,
        "local_layers": (1, 2),
        "local_window": 3,
        "local_rotary_theta": 10000.0,
        "pre_norm": True,
        "gated": True,
        "attention_bias": False,
        "feed_forward_bias": False,
        "norm_bias": False,
        "layer_norm_eps": 1e-5,
    },
}


def tiny_config(**changes) -> EncoderConfig:
    """Two layers of width 32: small enough to compile in a second."""
    sizes = {
        "model_type": "bert",
        "vocab_size": 200,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "intermediate_size": 64,
        "max_positions": 64,
    }
    return EncoderConfig(**{**sizes, **changes})


def write_tokenizer(folder: Path, vocab_size: int = 200) -> None:
    """Trains a lower-casing WordPiece tokenizer on `SENTENCES` and writes `tokenizer.json`: the same in every run."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokens = train_wordpiece(lambda: [SENTENCES], vocab_size, alphabet=60, min_frequency=0)
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    settings = {"tokenizer_class": "BertTokenizerFast", "model_max_length": 64, "do_lower_case": True, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_model(folder: Path, *, seed: int = 0, **changes) -> Path:
    """A complete model folder: config.json, model.safetensors, tokenizer.json."""
    from jaxwhiten.models import init_model, save_model  # with Flax, which processes of tests do without

    save_model(init_model(tiny_config(initializer_range=0.2, **changes), seed=seed), folder)
    write_tokenizer(folder)
    return folder


def write_cross_encoder(folder: Path, labels: int = 1, seed: int = 1) -> Path:
    """A sentence-transformers CrossEncoder folder of one layer, for pairs of up to 48 tokens."""
    from flax import nnx

    from jaxwhiten import CrossEncoder
    from jaxwhiten.models import PairClassifier, init_model

    config = tiny_config(num_layers=1, initializer_range=0.4)
    model = PairClassifier(init_model(config, seed=seed), labels, rngs=nnx.Rngs(2))
    with tempfile.TemporaryDirectory() as name:
        write_tokenizer(Path(name))
        return CrossEncoder(model, name, max_length=48).save(folder)


def by_pooling(encoder, texts, names, batch_size=None):
    """The vectors of texts by pooling, of one forward pass as far as poolings read the same texts."""
    return at_once({name: encoder.view.with_pooling(name) for name in names}, texts, batch_size)
