"""What a model folder specifies: applied as sentence-transformers applies it, refused by file and key, or harmless."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from jaxwhiten import Encoder
from jaxwhiten.errors import ModelError
from jaxwhiten.models import init_model, load_config, save_model
from tests.conftest import slow_but
from tests.text.test_classes import update
from tests.text.test_classes import write as write_tokenizer
from tests.tiny import FAMILIES, tiny_config, write_model

TEXTS = [
    "A MAN plays a Guitar.",
    "Naïve CAFÉ, [SEP] water [MASK] Boils",
    "北京 water",
    "Two <pad> dogs </s> run. [PAD]",
]
BERT, TOKENIZER = "sentence_bert_config.json", "tokenizer_config.json"
TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"


def as_sentence_transformer(folder, path=""):
    """Adds the list of modules, and mean pooling."""
    kinds = {"Transformer": path, "Pooling": "1_Pooling"}
    rows = [{"idx": 0, "name": k, "path": v, "type": f"sentence_transformers.models.{k}"} for k, v in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(rows))
    update(folder / "1_Pooling" / "config.json", word_embedding_dimension=32, pooling_mode_mean_tokens=True)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A BERT of one layer that sentence-transformers reads; its vocabulary is of lower-case words."""
    return as_sentence_transformer(write_model(tmp_path_factory.mktemp("settings") / "model", num_layers=1))


@pytest.fixture
def folder(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model")


def cased(folder, **settings):
    """Makes `tokenizer.json` keep capital letters and accents, whatever `tokenizer_config.json` specifies."""
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    update(folder / TOKENIZER, **{"do_lower_case": False, **settings})


def older(name, **keys):
    return lambda folder: (cased(folder), update(folder / f"sentence_{name}_config.json", **keys))


def moved(path, root=None):
    """Moves the Transformer into a folder of its own; the root gets another model, or a `config.json` of its own."""

    def change(folder):
        for file in [file for file in folder.iterdir() if file.is_file() and file.name != "modules.json"]:
            (folder / path).mkdir(exist_ok=True)
            file.rename(folder / path / file.name)
        as_sentence_transformer(folder, path)
        if root is None:
            for name in ("config.json", "tokenizer.json", TOKENIZER):
                shutil.copy(folder / path / name, folder / name)
            weights = load_file(folder / path / "model.safetensors")
            save_file({name: 2 * x for name, x in weights.items()}, folder / "model.safetensors")
        else:
            update(folder / "config.json", **root)

    return change


# Each changes a folder; what it specifies is applied.
APPLIED = {
    "lower case": lambda f: (cased(f), update(f / BERT, max_seq_length=40, do_lower_case=True)),
    "lower case, and lower-casing rules": lambda f: update(f / BERT, do_lower_case=True),
    "a default prompt in lower case": lambda f: (
        cased(f),
        update(f / BERT, do_lower_case=True),
        update(f / "config_sentence_transformers.json", prompts={"q": "Water [SEP] MAN "}, default_prompt_name="q"),
    ),
    "tokenizer: lower case": lambda f: cased(f, do_lower_case=True),
    "tokenizer: no lower case": lambda f: update(f / TOKENIZER, do_lower_case=False),
    "tokenizer: a class that keeps its rules": lambda f: cased(
        f, do_lower_case=True, tokenizer_class="PreTrainedTokenizerFast"
    ),
    "tokenizer_args": lambda f: (
        cased(f),
        update(f / BERT, max_seq_length=5, tokenizer_args={"do_lower_case": True, "model_max_length": 7}),
    ),
    "processor_kwargs": lambda f: update(f / BERT, max_seq_length=5, processor_kwargs={"truncation_side": "left"}),
    "config_args": lambda f: update(f / BERT, config_args={"hidden_act": "relu", "layer_norm_eps": 0.3}),
    "processing_kwargs": lambda f: update(f / BERT, processing_kwargs={"text": {"max_length": 6, "padding": True}}),
    "an older name": older("roberta", max_seq_length=7, do_lower_case=True),
    "a folder of its own": moved("0_enc", {}),
    "a base model in the root": moved("0_Transformer"),
    "a base model in the root, another name": moved("0_enc"),
    "an early root": moved("0_BERT", {"__version__": "0.3.8"}),
}

# The folder already did that, or the files only lie elsewhere.
AS_BEFORE = ("lower case, and lower-casing rules", "tokenizer: lower case", "a folder of its own", "an early root")
AS_BEFORE += ("a base model in the root", "a base model in the root, another name")


def expected(folder, texts=TEXTS, **options):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    peer = library.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    return peer.encode(texts, batch_size=1, **options)  # its padding takes no part


@pytest.mark.parametrize(
    "case", slow_but(APPLIED, "a default prompt in lower case", "tokenizer_args", "a base model in the root")
)
def test_what_is_understood_is_applied(folder, tmp_path, case):
    before = Encoder.from_pretrained(folder).encode(TEXTS)
    APPLIED[case](folder)
    encoder = Encoder.from_pretrained(folder)
    found = encoder.encode(TEXTS)
    assert (np.abs(found - before).max() < 1e-5) == (case in AS_BEFORE)
    saved = Encoder.from_pretrained(encoder.save(tmp_path / "saved"))
    np.testing.assert_allclose(saved.encode(TEXTS), found, atol=1e-5)
    np.testing.assert_allclose(found, expected(folder), atol=1e-5)
    np.testing.assert_allclose(found, expected(tmp_path / "saved"), atol=1e-5)


@pytest.mark.parametrize("name", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"])
def test_older_names_of_the_file(folder, name):
    older(name, max_seq_length=7)(folder)
    assert Encoder.from_pretrained(folder).max_length == 7


def test_fewer_layers_by_config_args(tmp_path):
    """The others are not read, as in transformers."""
    whole = as_sentence_transformer(write_model(tmp_path / "model"))
    update(whole / BERT, config_args={"num_hidden_layers": 1})
    encoder = Encoder.from_pretrained(whole)
    assert encoder.view.core.config.num_layers == 1
    np.testing.assert_allclose(encoder.encode(TEXTS), expected(whole), atol=1e-5)


def test_what_is_kept_follows_config_args(folder, tmp_path, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setenv("JAXWHITEN_COMPILATION_CACHE", "1")
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
    before = Encoder.from_pretrained(folder, engine="openvino")
    before.encode(TEXTS)
    update(folder / BERT, config_args={"hidden_act": "relu"})
    after, in_jax = (Encoder.from_pretrained(folder, engine=engine) for engine in ("openvino", "jax"))
    np.testing.assert_allclose(after.encode(TEXTS), in_jax.encode(TEXTS), atol=1e-5)
    assert after.view.fingerprint == in_jax.view.fingerprint != before.view.fingerprint


REFUSED = [
    (BERT, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
    (BERT, {"modality_config": {"text": TEXT, "message": TEXT}}, "modality_config contains 'message'"),
    (BERT, {"modality_config": {"text": {**TEXT, "method_output_name": "pooler_output"}}}, "modality_config is"),
    (BERT, {"modality_config": {"image": TEXT}}, "modality_config is"),
    (BERT, {"module_output_name": "sentence_embedding"}, "module_output_name is 'sentence_embedding'"),
    (BERT, {"query_length": 8}, "query_length is 8"),
    (BERT, {"document_length": 8}, "document_length is 8"),
    (BERT, {"query_expansion": {"strategy": "fixed", "length": 32}}, "query_expansion is"),
    (BERT, {"tokenizer_name_or_path": "elsewhere"}, "tokenizer_name_or_path is 'elsewhere'"),
    (BERT, {"layers_to_skip": [1]}, r"layers_to_skip is \[1\]"),
    (BERT, {"tokenizer_args": {"add_eos_token": True}}, "add_eos_token is True"),
    (BERT, {"config_args": {"is_decoder": True}}, "is_decoder is True"),
    (BERT, {"config_args": 3}, "config_args is 3"),
    (BERT, {"processing_kwargs": {"text": {"truncation": False}}}, "truncation is False"),
    (BERT, {"processing_kwargs": {"common": {"add_special_tokens": False}}}, "add_special_tokens"),
    (BERT, {"processing_kwargs": {"text": {"is_split_into_words": True}}}, "is_split_into_words is True"),
    (TOKENIZER, {"split_special_tokens": True}, "split_special_tokens is True"),
    ("1_Pooling/config.json", {"skip_punctuation": True}, "skip_punctuation is True"),
]


@pytest.mark.parametrize(("file", "keys", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_could_change_vectors_is_refused_by_file_and_key(folder, file, keys, message):
    update(folder / file, **keys)
    with pytest.raises(ModelError, match=message) as error:
        Encoder.from_pretrained(folder)
    assert str(error.value).startswith((str(folder / file), str(folder / "config.json")))


# As published folders carry them.
HARMLESS = {
    BERT: {
        **{"max_seq_length": 64, "do_lower_case": False, "transformer_task": "feature-extraction"},
        "modality_config": {"text": TEXT},
        "module_output_name": "token_embeddings",
        **{"unpad_inputs": False, "query_length": None, "query_expansion": None, "processing_kwargs": {}},
        "tokenizer_args": {"padding_side": "left", "trust_remote_code": True, "use_fast": True},
        "model_args": {"torch_dtype": "auto", "attn_implementation": "sdpa", "trust_remote_code": True},
        "config_args": {"use_cache": False, "trust_remote_code": True, "num_labels": 1},
    },
    TOKENIZER: {
        **{"added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}}, "backend": "tokenizers"},
        **{"is_local": True, "clean_up_tokenization_spaces": True, "do_basic_tokenize": True, "never_split": None},
        **{"extra_special_tokens": {}, "max_length": 128, "stride": 0, "truncation_side": "right"},
        **{"tokenize_chinese_chars": True, "strip_accents": None, "truncation_strategy": "longest_first"},
        **{"name_or_path": "somebody/model", "special_tokens_map_file": None, "chat_template": TEMPLATE},
        **{"pad_to_multiple_of": None, "pad_token_type_id": 0, "split_special_tokens": False, "sp_model_kwargs": {}},
        **{"model_input_names": ["input_ids", "attention_mask"], "local_files_only": False, "errors": "replace"},
    },
    "config_sentence_transformers.json": {
        **{"__version__": {"sentence_transformers": "5.4.0", "transformers": "5.0.0", "pytorch": "2.9"}},
        **{"model_type": "SentenceTransformer", "prompts": {"query": "", "document": ""}, "default_prompt_name": None},
        **{"similarity_fn_name": "cosine", "requirements": None},
    },
    "config.json": {
        **{"_name_or_path": "somebody/model", "transformers_version": "5.0.0", "gradient_checkpointing": False},
        **{"classifier_dropout": None, "use_cache": True, "id2label": {"0": "LABEL_0"}, "torch_dtype": "float32"},
    },
    "1_Pooling/config.json": {"include_prompt": True, "pooling_mode_cls_token": False, "pooling_mode_lasttoken": False},
    "special_tokens_map.json": {"pad_token": "[PAD]"},
}


@pytest.mark.usefixtures("no_advice")
def test_what_is_harmless_is_silent(folder, recwarn):
    before = Encoder.from_pretrained(folder).encode(TEXTS)
    for file, keys in HARMLESS.items():
        update(folder / file, **keys)
    np.testing.assert_array_equal(Encoder.from_pretrained(folder).encode(TEXTS), before)
    assert [str(warning.message) for warning in recwarn] == []


def test_a_cross_encoder_has_settings_of_its_own(cross_encoder, tmp_path):
    from jaxwhiten import CrossEncoder

    folder = shutil.copytree(cross_encoder, tmp_path / "cross")
    scores = {"text": {"method": "forward", "method_output_name": "logits"}}
    task = "sequence-classification"
    update(folder / BERT, transformer_task=task, modality_config=scores, module_output_name="scores")
    pairs = [("A dog.", "It rains."), ("Water.", "Salt.")]
    np.testing.assert_array_equal(
        CrossEncoder.from_pretrained(folder).predict(pairs), CrossEncoder.from_pretrained(cross_encoder).predict(pairs)
    )


SIZES = {"num_layers": 1, "vocab_size": 340, "initializer_range": 0.2, "pad_token_id": 1}


@pytest.mark.parametrize(
    ("family", "name", "settings"),
    slow_but(
        [
            ("roberta", "RobertaTokenizer", {}),
            ("roberta", "RobertaTokenizer", {"add_prefix_space": True}),
            ("xlm-roberta", "XLMRobertaTokenizer", {"add_prefix_space": False}),
            ("mpnet", "MPNetTokenizer", {}),
        ],
        ("roberta", "RobertaTokenizer", {"add_prefix_space": True}),
    ),
)
def test_padding_tokens_in_a_text_and_spaces_before_it(tmp_path, family, name, settings):
    """Families that count positions from the padding id, with a tokenizer of their class."""
    config = {**FAMILIES["roberta" if family == "xlm-roberta" else family], **SIZES, "model_type": family}
    folder = tmp_path / "model"
    save_model(init_model(tiny_config(**config), seed=0), folder)
    for file in ("tokenizer.json", TOKENIZER):
        shutil.copy(write_tokenizer(tmp_path / file, name) / file, folder / file)
    update(as_sentence_transformer(folder) / TOKENIZER, model_max_length=60, **settings)
    encoder = Encoder.from_pretrained(folder, engine="jax")
    texts = [*TEXTS, "<s> Text <pad> Text </s> Text <unk> Text <mask>", "<pad>", "run <pad> <pad> two"]
    found = encoder.encode(texts)
    rows = encoder.encode(texts * 40)  # several texts in a row
    np.testing.assert_allclose(rows[: len(texts)], found, atol=1e-5)
    np.testing.assert_allclose(found, expected(folder, texts), atol=1e-5)
    pytest.importorskip("openvino")
    np.testing.assert_allclose(Encoder.from_pretrained(folder, engine="openvino").encode(texts), found, atol=1e-5)


def test_a_tokenizer_with_more_tokens_than_the_embedding_is_refused_with_one_of_them(tmp_path):
    folder = write_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = load_config(folder).vocab_size
    tokenizer.add_tokens([f"extra{number}" for number in range(rows - tokenizer.get_vocab_size() + 3)])
    last = tokenizer.id_to_token(rows + 2)
    tokenizer.save(str(folder / "tokenizer.json"))
    for engine in ("jax", "auto"):
        with pytest.raises(ModelError, match=rf"3 tokens more .*{rows} rows.*{last}"):
            Encoder.from_pretrained(folder, pooling="mean", engine=engine)
