"""The card of a masked language model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jaxwhiten import __version__
from jaxwhiten.export import card

_HEADER = {"library_name": "transformers", "pipeline_tag": "fill-mask"}


def masked_model_card(
    name: str, *, base_model: str, facts: Mapping[str, str], scores: Mapping[str, float], recipe: Mapping[str, Any]
) -> str:
    """The card of a masked language model, in Markdown with the header that the hub reads.

    `base_model` is "" for random weights. `facts` are parameters, tokens, time and hardware, by name; `scores` are on
    held-out text.
    """
    origin = "trained from random weights"
    if base_model:
        origin = f"trained from `{base_model}`"
    rows = [*facts.items(), *((key, f"{value:.4g}") for key, value in scores.items())]
    text = f"""A masked language model, {origin} with jaxwhiten {__version__}. It is not tuned for sentences:
whitening or fine-tuning makes its sentence vectors comparable.

| | |
|---|---|
{"".join(f"| {what} | {value} |{chr(10)}" for what, value in rows)}
Loss is in nats per masked token, accuracy in percent of masked tokens, both on held-out passages.

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
    return card(name, text, base_model, _HEADER, "fill-mask")
