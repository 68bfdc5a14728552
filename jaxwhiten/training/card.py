"""The model card of a trained masked language model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jaxwhiten._version import __version__


def masked_model_card(
    name: str,
    *,
    base_model: str,
    facts: Mapping[str, str],
    scores: Mapping[str, float],
    recipe: Mapping[str, Any],
) -> str:
    """The text of a masked language model's card.

    Args:
      name: The model's name.
      base_model: What training went on from, or "" for random weights.
      facts: Name and value: parameters, tokens, time, hardware.
      scores: On text held out, by name.
      recipe: What the run was made of.

    Returns:
      Markdown with the header the hub reads.
    """
    origin = f"trained on from `{base_model}`" if base_model else "trained from random weights"
    base = f"base_model: {json.dumps(base_model)}\n" if base_model else ""
    rows = [*facts.items(), *((key, f"{value:.4g}") for key, value in scores.items())]
    table = "\n".join(f"| {key} | {value} |" for key, value in rows)
    return f"""---
library_name: transformers
pipeline_tag: fill-mask
{base}tags:
- fill-mask
- feature-extraction
- jaxwhiten
---

# {name}

A masked language model, {origin} with jaxwhiten {__version__}. It was not tuned for sentence similarity: whitening
or fine-tuning makes its sentence vectors comparable.

| | |
|---|---|
{table}

Loss is in nats a masked token, accuracy in per cent of masked tokens, both on passages that were not trained on.

## Use

```python
from jaxwhiten import Encoder

vectors = Encoder.from_pretrained("FOLDER", pooling="first_last_avg").encode(["A sentence."])
```

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model, tokenizer = AutoModelForMaskedLM.from_pretrained("FOLDER"), AutoTokenizer.from_pretrained("FOLDER")
```

## Recipe

```json
{json.dumps(dict(recipe), indent=2, ensure_ascii=False)}
```
"""
