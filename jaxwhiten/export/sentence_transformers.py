"""A model folder that sentence-transformers, transformers and `Encoder.from_pretrained` all load.

The layout is sentence-transformers' own, with the module names that old and new versions know.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.export.source import Source, check_pooling, layer_weights, load_source
from jaxwhiten.head.pooling import AUTO
from jaxwhiten.models import TransformerEncoder, save_model
from jaxwhiten.text.tokenization import copy_tokenizer
from jaxwhiten.whitening.whitening import Whitening

# What sentence-transformers' Pooling module can do.
POOLING_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}

_COPIED = (".json", ".txt", ".model", ".safetensors")
_MODULES = "sentence_transformers.models"


def save_sentence_transformer(
    folder: str | Path,
    model: TransformerEncoder,
    tokenizer_folder: str | Path,
    *,
    pooling: str = "mean",
    max_length: int = 128,
    whitening: Whitening | None = None,
    card: str | None = None,
    dtype: str = "float32",
) -> Path:
    """Writes a model folder: weights, config, tokenizer, pooling, whitening, and a model card.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: An encoder of `jaxwhiten.models`.
      tokenizer_folder: Where its tokenizer lies; the files are copied.
      pooling: `"mean"`, `"cls"`, `"max"`, or an average of hidden states such as `"first_last_avg"`.
      max_length: Longest sentence in tokens.
      whitening: Follows the pooling as a Dense layer, and a Normalize after it; None for neither.
      card: Text of README.md; none is written without it.
      dtype: Type of the stored weights.

    Returns:
      The folder.

    Raises:
      InputError: A pooling such a folder cannot say.
    """
    folder, tokenizer_folder = Path(folder), Path(tokenizer_folder)
    config = model.config
    weights = layer_weights(pooling, config.num_layers)
    name = check_pooling(pooling)
    _check_width(whitening, config.hidden_size)
    save_model(model, folder, dtype=dtype)
    copy_tokenizer(tokenizer_folder, folder)
    modules = [_module("Transformer", 0, "")]
    if weights is not None:
        # Without its hidden states in the output, sentence-transformers would pool the last one.
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        io.write_json(folder / "config.json", raw | {"output_hidden_states": True})
        modules.append(_module("WeightedLayerPooling", len(modules)))
        _write_layer_mix(folder / modules[-1]["path"], weights, config.num_layers, config.hidden_size)
    modules.append(_module("Pooling", len(modules)))
    mode = POOLING_MODES.get(name, POOLING_MODES["mean"])
    modes = {key: key == mode for key in POOLING_MODES.values()} | {"pooling_mode_mean_sqrt_len_tokens": False}
    place = folder / modules[-1]["path"]
    io.write_json(place / "config.json", {"word_embedding_dimension": config.hidden_size, **modes})
    modules += _write_whitening(folder, whitening, len(modules))
    io.write_json(folder / "modules.json", modules)
    io.write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    io.write_json(
        folder / "config_sentence_transformers.json",
        {"__version__": {"jaxwhiten": __version__}, "prompts": {}, "similarity_fn_name": "cosine"},
    )
    if card is not None:
        io.write_text(folder / "README.md", card)
    return folder


def export_sentence_transformer(
    folder: str | Path,
    model: str | Path,
    *,
    pooling: str = AUTO,
    max_length: int | None = None,
    whitening: Whitening | None = None,
    card: str | None = None,
    revision: str | None = None,
) -> Path:
    """A model with its pooling and a whitening as a folder that sentence-transformers loads.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: A local folder or a hub id.
      pooling: As in `save_sentence_transformer`, or `"auto"`: all that the model's folder does, and then the whitening.
      max_length: Longest sentence in tokens; by default what the folder says with `"auto"`, else 64.
      whitening: A fitted whitening, or None.
      card: Text of README.md.
      revision: Commit, tag or branch on the hub.

    Returns:
      The folder.

    Raises:
      InputError: A pooling such a folder cannot say, or the model's own folder as the output.
      MismatchError: A whitening of vectors of another width.
      ModelError: The model cannot be read.
    """
    source = load_source(model, pooling=pooling, max_length=max_length, revision=revision)
    source.check_whitening(whitening)
    folder = Path(folder)
    if folder.exists() and folder.samefile(source.folder):
        raise InputError(f"{folder}: is the model's own folder; name another one.")
    if source.head is None:
        return save_sentence_transformer(
            folder,
            source.model,
            source.tokenizer_folder,
            pooling=source.pooling,
            max_length=source.max_length,
            whitening=whitening,
            card=card,
        )
    return _extend(folder, source, whitening, card)


def _extend(folder: Path, source: Source, whitening: Whitening | None, card: str | None) -> Path:
    """Copies a sentence-transformers folder and adds the whitening to its modules."""
    listed = source.folder / "modules.json"
    modules = [_module("Transformer", 0, ""), _module("Pooling", 1)]
    if listed.is_file():
        modules = json.loads(listed.read_text(encoding="utf-8"))
    for module in modules:
        place = source.folder / module["path"]
        for file in sorted(place.glob("*")):
            if file.is_file() and file.suffix in _COPIED and file.name != "modules.json":
                with io.atomic_path(folder / module["path"] / file.name) as temporary:
                    shutil.copyfile(file, temporary)
    first = modules[0]["path"]
    if not list((source.folder / first).glob("model*.safetensors")):
        _save_weights(source, folder / first)
    file = "config_sentence_transformers.json"
    if (source.folder / file).is_file():
        io.write_text(folder / file, (source.folder / file).read_text(encoding="utf-8"))
    settings = folder / first / "sentence_bert_config.json"
    raw = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {"do_lower_case": False}
    io.write_json(settings, raw | {"max_seq_length": source.max_length})
    modules += _write_whitening(folder, whitening, len(modules))
    io.write_json(folder / "modules.json", modules)
    if card is not None:
        io.write_text(folder / "README.md", card)
    return folder


def _save_weights(source: Source, folder: Path) -> None:
    """Writes weights that lie in another format as safetensors, and leaves the copied config.json as it is."""
    copied = (folder / "config.json").read_text(encoding="utf-8")
    save_model(source.model, folder)
    io.write_text(folder / "config.json", copied)


def _module(kind: str, number: int, path: str | None = None) -> dict[str, Any]:
    path = f"{number}_{kind}" if path is None else path
    return {"idx": number, "name": str(number), "path": path, "type": f"{_MODULES}.{kind}"}


def _check_width(whitening: Whitening | None, width: int) -> None:
    if whitening is not None and whitening.n_features_in_ != width:
        raise MismatchError(
            f"The whitening takes vectors of {whitening.n_features_in_} dimensions; the model gives {width}."
        )


def _write_whitening(folder: Path, whitening: Whitening | None, number: int) -> list[dict[str, Any]]:
    """Writes W and b as a Dense layer, and gives the rows of modules.json for it and the Normalize after it."""
    if whitening is None:
        return []
    weight, bias = whitening.kernel
    modules = [_module("Dense", number), _module("Normalize", number + 1)]
    place = folder / modules[0]["path"]
    io.write_json(
        place / "config.json",
        {
            "in_features": weight.shape[0],
            "out_features": weight.shape[1],
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    )
    _save_tensors(place, {"linear.weight": weight.T, "linear.bias": bias})
    return modules


def _write_layer_mix(place: Path, weights: dict[int, int], num_layers: int, width: int) -> None:
    first = min(weights)
    values = np.array([weights.get(i, 0) for i in range(first, num_layers + 1)], np.float32)
    raw = {"word_embedding_dimension": width, "layer_start": first, "num_hidden_layers": num_layers}
    io.write_json(place / "config.json", raw)
    _save_tensors(place, {"layer_weights": values})


def _save_tensors(place: Path, tensors: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    with io.atomic_path(place / "model.safetensors") as temporary:
        arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        save_file(arrays, temporary, metadata={"format": "pt"})


def model_card(
    name: str,
    *,
    base_model: str,
    dimension: int,
    pooling: str,
    max_length: int,
    recipe: Mapping[str, Any],
    scores: Mapping[str, float],
) -> str:
    """The text of a model card: what the model is, how it was made, what it scores, how to use it.

    Args:
      name: The model's name.
      base_model: What was fine-tuned.
      dimension: Width of the vectors.
      pooling: How token vectors become one.
      max_length: Longest sentence in tokens.
      recipe: What the run was made of.
      scores: Spearman correlations in points, by task and split.

    Returns:
      Markdown with the header the hub reads.
    """
    table = "\n".join(f"| {task} | {score:.2f} |" for task, score in scores.items())
    results = f"| task | Spearman × 100 |\n|---|---|\n{table}" if scores else "No task was scored."
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
base_model: {json.dumps(base_model)}
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- jaxwhiten
---

# {name}

Maps sentences to vectors of {dimension} numbers whose cosine says how similar the sentences are. Fine-tuned from
`{base_model}` with jaxwhiten {__version__}; {pooling} pooling, sentences of up to {max_length} tokens.

## Scores

{results}

## Use

```python
from jaxwhiten import Encoder

vectors = Encoder.from_pretrained("FOLDER", pooling="auto", max_length={max_length}).encode(["A sentence."])
```

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("FOLDER").encode(["A sentence."])
```

## Recipe

```json
{json.dumps(dict(recipe), indent=2, ensure_ascii=False)}
```
"""
