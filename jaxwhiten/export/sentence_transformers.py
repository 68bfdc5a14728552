"""A model folder that sentence-transformers, transformers and `Encoder.from_pretrained` all load.

The layout is sentence-transformers' own, with the module names that old and new versions know.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flax import nnx

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.errors import unknown_name
from jaxwhiten.models import save_model
from jaxwhiten.pooling import canonical

# What sentence-transformers' Pooling module can do.
POOLING_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
)
_MODULES = "sentence_transformers.models"


def check_pooling(pooling: str) -> str:
    """The pooling's own name, if a sentence-transformers folder can say it.

    Raises:
      InputError: It cannot; the message gives those it can.
    """
    name = canonical(pooling)
    if name not in POOLING_MODES:
        raise unknown_name("pooling of a sentence-transformers folder", pooling, POOLING_MODES)
    return name


def save_sentence_transformer(
    folder: str | Path,
    model: nnx.Module,
    tokenizer_folder: str | Path,
    *,
    pooling: str = "mean",
    max_length: int = 128,
    card: str | None = None,
    dtype: str = "float32",
) -> Path:
    """Writes a model folder: weights, config, tokenizer, pooling, and a model card.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: An encoder of `jaxwhiten.models`.
      tokenizer_folder: Where its tokenizer lies; the files are copied.
      pooling: `"mean"`, `"cls"` or `"max"`.
      max_length: Longest sentence in tokens.
      card: Text of README.md; none is written without it.
      dtype: Type of the stored weights.

    Returns:
      The folder.

    Raises:
      InputError: A pooling such a folder cannot say.
    """
    folder, tokenizer_folder = Path(folder), Path(tokenizer_folder)
    mode = POOLING_MODES[check_pooling(pooling)]
    save_model(model, folder, dtype=dtype)
    for name in _TOKENIZER_FILES:
        if (tokenizer_folder / name).is_file():
            with io.atomic_path(folder / name) as temporary:
                shutil.copyfile(tokenizer_folder / name, temporary)
    modes = {key: key == mode for key in POOLING_MODES.values()} | {"pooling_mode_mean_sqrt_len_tokens": False}
    io.write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": model.config.hidden_size, **modes})
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    rows = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_MODULES}.{kind}"}
        for number, (path, kind) in enumerate(modules)
    ]
    io.write_json(folder / "modules.json", rows)
    io.write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    io.write_json(
        folder / "config_sentence_transformers.json",
        {"__version__": {"jaxwhiten": __version__}, "prompts": {}, "similarity_fn_name": "cosine"},
    )
    if card is not None:
        io.write_text(folder / "README.md", card)
    return folder


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
