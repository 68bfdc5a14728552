"""What the folder of a Transformer specifies for its texts, read against lists of the keys that are understood.

`sentence_bert_config.json` is sentence-transformers' file, `tokenizer_config.json` that of transformers. A key that is
understood is applied as these libraries apply it. One that could change vectors and is not understood is an error that
names file and key. The others are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten.errors import ModelError
from jaxwhiten.types import Fields, Json

ANEW = "Download or save the model again."  # what to do about a damaged file of a model folder
TOKENIZER_SETTINGS = "tokenizer_config.json"
_FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SETTINGS_FILES = tuple(f"sentence_{family}_config.json" for family in _FAMILIES)
"""Names of sentence-transformers' file, the first that is there and not empty counts."""

# Keys of `sentence_bert_config.json` that hold keys for other files, by all their names.
_MODEL = ("model_kwargs", "model_args")
_TOKENIZER = ("processor_kwargs", "tokenizer_args")
_CONFIG = ("config_kwargs", "config_args")
_CALLS = ("processing_kwargs",)
_TASK = "feature-extraction"
_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
# What sentence-transformers passes to the libraries that fetch files.
_FETCHING = {"cache_dir", "cache_folder", "code_revision", "force_download", "local_files_only", "proxies", "revision"}
_FETCHING |= {"subfolder", "token", "trust_remote_code", "use_auth_token"}
# Keys of a tokenizer, or of its calls, without an effect on vectors.
_IGNORED = {"chat_template", "clean_up_tokenization_spaces", "model_input_names", "never_split", *_FETCHING}
_IGNORED |= {"pad_to_multiple_of", "pad_token", "pad_token_type_id", "padding_side", "padding", "use_fast"}
_IGNORED |= {"do_basic_tokenize", "errors", "max_length", "stride", "trim_offsets", "verbose", "logits_to_keep"}
_IGNORED |= {f"return_{what}" for what in ("attention_mask", "length", "offsets_mapping", "special_tokens_mask")}
_IGNORED |= {"return_tensors", "return_token_type_ids"}

_UNDERSTOOD = {"do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "keep_accents"}
_UNDERSTOOD |= {"split_special_tokens", "model_max_length", "truncation_side"}
_KEYS = {*_MODEL, *_TOKENIZER, *_CONFIG, "max_seq_length", "do_lower_case", "processing_kwargs", "unpad_inputs"}
_KEYS |= {"transformer_task", "modality_config", "module_output_name", "query_length", "document_length"}
_KEYS |= {"query_expansion", "tokenizer_name_or_path", "cache_dir", "backend"}


@dataclasses.dataclass(frozen=True)
class TransformerSettings:
    """The contents of a folder's `sentence_bert_config.json`, or of an older name; all fields are optional there.

    Attributes:
      file: The file that was read.
      max_length: Tokens of a text, special tokens included.
      lower_case: Whether texts are lower-cased, special tokens in them excepted.
      config: Keys that replace those of `config.json`.
      tokenizer: Keys that replace those of `tokenizer_config.json`.
    """

    file: Path
    max_length: int | None = None
    lower_case: bool = False
    config: Fields = dataclasses.field(default_factory=dict)
    tokenizer: Fields = dataclasses.field(default_factory=dict)
    raw: Fields = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path) -> TransformerSettings:
        """Reads the file; `ModelError` if a key could change vectors and is not understood, or its value is not."""
        files = [folder / name for name in SETTINGS_FILES]
        contents = ((file, read_object(file)) for file in files if file.is_file())
        file, raw = next(((file, raw) for file, raw in contents if raw), (files[0], {}))
        if not raw:
            return cls(file)
        refuse_unknown(file, raw, _KEYS)
        tokenizer, config, calls = (_nested(file, raw, *names) for names in (_TOKENIZER, _CONFIG, _CALLS))
        call = {**_nested(file, calls, "text"), **_nested(file, calls, "common")}
        accepted = {"add_special_tokens": (True,), "truncation": (True, "longest_first")}
        check_values(file, call, accepted)
        refuse_unknown(file, call, {*_IGNORED, *accepted})
        refuse_unknown(file, tokenizer, {*_IGNORED, *_UNDERSTOOD, "truncation"})
        lengths = (call.get("max_length"), tokenizer.get("model_max_length"), raw.get("max_seq_length"))
        return cls(
            file,
            next((length for length in lengths if type(length) is int and length > 0), None),
            bool(raw.get("do_lower_case")),
            {key: value for key, value in config.items() if key not in _FETCHING},
            {key: tokenizer[key] for key in _UNDERSTOOD if key in tokenizer},
            raw,
        )

    def check_text_encoder(self) -> None:
        """Raises `ModelError` if the Transformer gives something other than the last hidden state of plain texts."""
        only: dict[str, Sequence[Any]] = {"transformer_task": (_TASK,), "module_output_name": ("token_embeddings",)}
        only |= dict.fromkeys(("query_length", "document_length", "query_expansion", "tokenizer_name_or_path"), ())
        check_values(self.file, self.raw, only)
        modalities = self.raw.get("modality_config")
        if modalities is None:
            return
        text = modalities.get("text") if isinstance(modalities, Mapping) else None
        if not isinstance(text, Mapping) or any(text.get(key) not in (v, [v]) for key, v in _TEXT.items()):
            raise _unsupported(self.file, "modality_config", modalities, f"expected 'text' with {_TEXT}")
        if "message" in modalities:
            raise ModelError(
                f"{self.file}: modality_config contains 'message': sentence-transformers puts every text into the"
                " tokenizer's chat template, which is not supported. Remove 'message' from modality_config only if the"
                " model was trained on texts without the template."
            )


def refuse_unknown(file: Path, raw: Fields, understood: Collection[str]) -> None:
    """Raises `ModelError` for a key of a file, or of an object in it, that could change vectors.

    That is one that has a value and is not among those understood.
    """
    for key, value in raw.items():
        if key not in understood and value not in (None, {}, []):
            raise _unsupported(file, key, value, "it could change vectors, and is not understood")


def check_values(file: Path, raw: Fields, accepted: Mapping[str, Sequence[Any]]) -> None:
    """Raises `ModelError` for a key of a file that is there and has none of the values accepted."""
    for key, values in accepted.items():
        if raw.get(key) is not None and raw[key] not in values:
            advice = f"only {values[0]!r} is supported" if values else "remove the key, or use another model"
            raise _unsupported(file, key, raw[key], advice)


def _unsupported(file: Path, key: str, value: object, advice: str) -> ModelError:
    return ModelError(f"{file}: {key} is {value!r:.80}; {advice}.")


def _nested(file: Path, raw: Fields, *names: str) -> Fields:
    """The object under one of the names of a key; empty if there is none."""
    for name in names:
        if (value := raw.get(name)) is not None:
            if not isinstance(value, Mapping):
                raise _unsupported(file, name, value, "expected an object")
            return value
    return {}


def read_object(file: Path, *, optional: bool = False) -> Json:
    """The JSON object in a file of a model folder; empty for a missing one that is `optional`."""
    if optional and not file.is_file():
        return {}
    return io.read_json(file, dict[str, Any], ANEW, error=ModelError)


def tokenizer_settings(folder: Path) -> Json:
    """The keys of `tokenizer_config.json`, with those that sentence-transformers' file puts in their place."""
    file = folder / TOKENIZER_SETTINGS
    settings = read_object(file, optional=True)
    given = TransformerSettings.read(folder)
    for where, keys in ((file, settings), (given.file, given.tokenizer)):
        check_values(where, keys, {"split_special_tokens": (False,)})
    return {**settings, **given.tokenizer}
