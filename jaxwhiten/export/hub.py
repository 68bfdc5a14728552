"""A folder to upload to a hub: a sentence-transformers folder, the whitening file, and a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from jaxwhiten._version import __version__
from jaxwhiten.export.sentence_transformers import export_sentence_transformer
from jaxwhiten.export.source import Source, layer_weights, load_source
from jaxwhiten.head.folder import Normalize
from jaxwhiten.head.pooling import AUTO
from jaxwhiten.text.tokenization import PLAIN
from jaxwhiten.whitening.whitening import Whitening

WHITENING = "whitening.safetensors"


def save_hub_folder(
    folder: str | Path,
    model: str | Path,
    whitening: Whitening,
    *,
    pooling: str = AUTO,
    max_length: int | None = None,
    name: str | None = None,
    scores: Mapping[str, float] | None = None,
    revision: str | None = None,
) -> Path:
    """Writes a folder that can be uploaded as it is.

    Args:
      folder: Made if missing; files of the same names are replaced.
      model: A local folder or a hub id.
      whitening: A fitted whitening.
      pooling: As in `export_sentence_transformer`.
      max_length: As in `export_sentence_transformer`.
      name: The exported model's name; by default the folder's.
      scores: What the model scores, by task; in points.
      revision: Commit, tag or branch on the hub.

    Returns:
      The folder.

    Raises:
      InputError, MismatchError, ModelError: As `export_sentence_transformer`.
    """
    folder = Path(folder)
    source = load_source(model, pooling=pooling, max_length=max_length, revision=revision)
    card = whitening_card(name or folder.resolve().name, str(model), source, whitening, scores or {})
    export_sentence_transformer(
        folder, model, pooling=pooling, max_length=max_length, whitening=whitening, card=card, revision=revision
    )
    whitening.save(folder / WHITENING)
    return folder


def whitening_card(
    name: str, base_model: str, source: Source, whitening: Whitening, scores: Mapping[str, float]
) -> str:
    """The text of a whitened model's card.

    Args:
      name: The model's name.
      base_model: The encoder, a hub id or a folder.
      source: The encoder and its pooling.
      whitening: What follows the pooling.
      scores: In points, by task.

    Returns:
      Markdown with the header the hub reads.
    """
    facts = whitening.provenance
    k = whitening.n_components or whitening.n_features_in_
    base = Path(base_model).resolve().name if Path(base_model).is_dir() else base_model
    rows = [
        ("encoder", f"`{base}`"),
        ("pooling", source.head.summary if source.head is not None else source.pooling),
        ("sentences", f"up to {source.max_length} tokens"),
        ("whitening fitted on", f"{facts['n']:,} rows of {facts.get('corpus') or 'an unnamed corpus'}"),
        ("dimensions", f"k = {k} of {whitening.n_features_in_} (rank {whitening.rank_})"),
        ("share of the mean subtracted", f"β = {whitening.beta:g}"),
        ("power of the scaling", f"γ = {whitening.gamma:g}"),
    ]
    if whitening.shrinkage is not None:
        rows.append(("shrinkage", f"{whitening.shrinkage} ({whitening.shrinkage_:.4g})"))
    table = "\n".join(f"| {what} | {value} |" for what, value in rows)
    results = "\n".join(f"| {task} | {score:.2f} |" for task, score in scores.items())
    results = f"| task | Spearman × 100 |\n|---|---|\n{results}" if scores else "No task was scored."
    snippets = "\n\n".join(f"```python\n{code}```" for code in _snippets(source))
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
base_model: {json.dumps(base, ensure_ascii=False)}
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- whitening
- jaxwhiten
---

# {name}

Maps sentences to vectors of {k} numbers whose cosine says how similar the sentences are: `{base}`, pooled, then
whitened with jaxwhiten {__version__}. No weight of the encoder was changed.

| what | value |
|---|---|
{table}

## Scores

{results}

## Use

`FOLDER` is where this folder lies. All give vectors of unit length, equal up to rounding.

{snippets}

`{WHITENING}` holds the whole eigendecomposition: `jaxwhiten.Whitening.load` gives every other k, β and γ from it.

## Method

Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster Retrieval (2021).
"""


_TOKENS = {
    "cls": "pooled = states[-1][:, 0]",
    "max": "pooled = states[-1].masked_fill(mask == 0, -torch.inf).amax(1)",
    "mean": "pooled = (states[-1] * mask).sum(1) / mask.sum(1)",
}


def _snippets(source: Source) -> list[str]:
    """Code that loads the folder, one text a library; plain transformers only where it takes a few lines."""
    codes = [
        """from jaxwhiten import Encoder

vectors = Encoder.from_pretrained("FOLDER", pooling="auto").encode(["A sentence."])
""",
        """from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("FOLDER").encode(["A sentence."])
""",
    ]
    pooled = _pooling_code(source)
    if pooled is not None:
        lines, dense = pooled
        codes.append(f"""import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("FOLDER"), AutoModel.from_pretrained("FOLDER").eval()
tokens = tokenizer(
    ["A sentence."], padding=True, truncation=True, max_length={source.max_length}, return_tensors="pt"
)
with torch.no_grad():
    states = model(**tokens, output_hidden_states=True).hidden_states
mask = tokens["attention_mask"][:, :, None]
{lines}
whitening = load_file("FOLDER/{dense}/model.safetensors")
pooled = pooled @ whitening["linear.weight"].T + whitening["linear.bias"]
vectors = torch.nn.functional.normalize(pooled)
""")
    return codes


def _pooling_code(source: Source) -> tuple[str, str] | None:
    """Lines from `states` and `mask` to `pooled`, and the folder of the Dense layer; None for unusual heads."""
    head = source.head
    if head is None:
        weights = layer_weights(source.pooling, source.model.config.num_layers)
        if weights is None:
            return _TOKENS[source.pooling], "2_Dense"
        mixed = " + ".join(f"{weight} * states[{i}]" if weight > 1 else f"states[{i}]" for i, weight in weights.items())
        average = f"mixed = ({mixed}) / {sum(weights.values())}\n"
        return average + _TOKENS["mean"].replace("states[-1]", "mixed"), "3_Dense"
    plain = head.mix is None and head.form == PLAIN and len(head.modes) == 1 and head.modes[0] in _TOKENS
    if not plain or not all(isinstance(step, Normalize) for step in head.steps):
        return None
    lines = [_TOKENS[head.modes[0]], *["pooled = torch.nn.functional.normalize(pooled)"] * len(head.steps)]
    return "\n".join(lines), f"{2 + len(head.steps)}_Dense"
