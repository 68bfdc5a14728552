"""Model cards: what a model is, how it was made, what it scores, how to use it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxwhiten._version import __version__
from jaxwhiten.encoding import Encoder
from jaxwhiten.head import CODE_FILE, WHITENING_FILE
from jaxwhiten.whitening import Whitening

_USE = (
    """from jaxwhiten import Encoder

vectors = Encoder.from_pretrained("FOLDER").encode(["A sentence."])
""",
    """from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("FOLDER").encode(["A sentence."])
""",
)

_USE_CODE = """from jaxwhiten import Encoder

encoder = Encoder.from_pretrained("FOLDER")
documents = encoder.encode(["A sentence."])  # uint8, a code per sentence
queries = encoder.without_code().encode(["A question?"])  # float32
scores = queries @ encoder.head.code.decode(documents).T
"""

_SENTENCES = {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
_SENTENCE_TAGS = ("sentence-transformers", "sentence-similarity")


def card(name: str, text: str, base_model: str, header: Mapping[str, str], *tags: str) -> str:
    """A model card: the header that the hub reads, a title, and the text."""
    base = f"base_model: {json.dumps(base_model, ensure_ascii=False)}\n" if base_model else ""
    lines = "".join(f"{key}: {value}\n" for key, value in header.items())
    listed = "\n".join(f"- {tag}" for tag in (*tags, "feature-extraction", "jaxwhiten"))
    return f"---\n{lines}{base}tags:\n{listed}\n---\n\n# {name}\n\n{text}"


def _rows(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"| {what} | {value} |" for what, value in rows)


def _scores(scores: Mapping[str, float], measure: str = "Spearman × 100") -> str:
    rows = _rows((task, f"{score:.2f}") for task, score in scores.items())
    return f"| task | {measure} |\n|---|---|\n{rows}" if scores else "No task was scored."


def _code(*snippets: str) -> str:
    return "\n\n".join(f"```python\n{code}```" for code in snippets)


def head_card(name: str, encoder: Encoder, scores: Mapping[str, float]) -> str:
    """The card of an encoder with unchanged weights, in Markdown with the header that the hub reads.

    `scores` are Spearman × 100, by task.
    """
    base = Path(encoder.name).resolve().name if Path(encoder.name).is_dir() else encoder.name
    code, floats, whitening = encoder.head.code, encoder.without_code(), encoder.head.whitening
    rows = [("encoder", f"`{base}`"), ("head", encoder.head.summary)]
    rows += [("sentences", f"up to {encoder.max_length} tokens"), *_whitening_rows(whitening)]
    use = _code(_USE[0] if code is None else _USE_CODE, _USE[1])
    same = "Both compute the same vectors up to rounding" + (", and jaxwhiten their code." if code is not None else ".")
    text = f"""Maps sentences to {floats.dimension}-dimensional vectors whose cosine measures sentence similarity:
`{base}`, pooled{", then whitened" if whitening is not None else ""}, with jaxwhiten {__version__}. The encoder's
weights are unchanged.

| what | value |
|---|---|
{_rows(rows)}

## Scores

{_scores(scores)}

## Use

Replace `FOLDER` with this folder's path. {same}

{use}
"""
    if code is not None:
        text += f"""
## Code

`{CODE_FILE}` contains the code: {code.name} code of {code.nbytes} bytes; float32 needs {4 * floats.dimension:,}.
jaxwhiten computes the bytes of documents; other libraries compute the vectors, with which queries are compared.
"""
    if whitening is not None:
        text += f"""
`{WHITENING_FILE}` contains the whole eigendecomposition: `jaxwhiten.Whitening.load` derives every other k, β and γ.

## Method

Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster Retrieval (2021).
"""
    return card(name, text, base, _SENTENCES, *_SENTENCE_TAGS, *["whitening"] * (whitening is not None))


def _whitening_rows(whitening: Whitening | None) -> list[tuple[str, str]]:
    if whitening is None:
        return []
    facts = whitening.provenance
    k = whitening.n_components or whitening.n_features_in_
    rows = [
        ("whitening fitted on", f"{facts['n']:,} rows of {facts.get('corpus') or 'an unnamed corpus'}"),
        ("dimensions", f"k = {k} of {whitening.n_features_in_} (rank {whitening.rank_})"),
        ("fraction of the mean subtracted", f"β = {whitening.beta:g}"),
        ("exponent of the scaling", f"γ = {whitening.gamma:g}"),
    ]
    if whitening.shrinkage is not None:
        rows.append(("shrinkage", f"{whitening.shrinkage} ({whitening.shrinkage_:.4g})"))
    return rows


def model_card(
    name: str,
    encoder: Encoder,
    *,
    base_model: str,
    recipe: Mapping[str, Any],
    scores: Mapping[str, float],
    before: Mapping[str, float],
) -> str:
    """The card of a fine-tuned encoder, in Markdown with the header that the hub reads.

    `recipe` holds the settings of the run, `scores` scores × 100 by name, `before` the base model's.
    """
    modules = " > ".join(step.words() for step in encoder.head.steps)
    shown = {**scores, **{f"{task}, base model": score for task, score in before.items()}}
    worse = "\n\nTraining made the model worse." if any(scores[task] < score for task, score in before.items()) else ""
    text = f"""Maps sentences to {encoder.dimension}-dimensional vectors whose cosine measures sentence similarity.
Fine-tuned from `{base_model}` with jaxwhiten {__version__}; pooling and modules: {modules}; sentences of up to
{encoder.max_length} tokens.

## Scores

{_scores(shown, "score × 100")}{worse}

## Use

{_code(*_USE)}

## Recipe

```json
{json.dumps(dict(recipe), indent=2, ensure_ascii=False)}
```
"""
    return card(name, text, base_model, _SENTENCES, *_SENTENCE_TAGS)
