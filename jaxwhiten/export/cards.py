"""Model cards: what a model is, how it was made, what it scores, how to use it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from jaxwhiten._version import __version__
from jaxwhiten.encoding import Encoder
from jaxwhiten.head import CODE_FILE, WHITENING_FILE
from jaxwhiten.terminal import counted
from jaxwhiten.types import Fields
from jaxwhiten.whitening import Whitening

_SENTENCES = {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
_SENTENCE_TAGS = ("sentence-transformers", "sentence-similarity")


def filled(template: str, /, **values: object) -> str:
    """A template of the folder `templates`."""
    path = Path(__file__).with_name("templates") / f"{template}.txt"
    return Template(path.read_text(encoding="utf-8")).substitute(values)


def card(name: str, text: str, base_model: str, header: Mapping[str, str], *tags: str) -> str:
    """A model card: the header that the hub reads, a title, and the text.

    >>> card("small", "Text.", "bert-base-uncased", {"license": "apache-2.0"}, "bert").splitlines()[1]
    'license: apache-2.0'
    """
    base = f"base_model: {json.dumps(base_model, ensure_ascii=False)}\n" if base_model else ""
    lines = "".join(f"{key}: {value}\n" for key, value in header.items())
    listed = "\n".join(f"- {tag}" for tag in (*tags, "feature-extraction", "jaxwhiten"))
    return filled("card", header=lines, base=base, tags=listed, name=name, text=text)


def _rows(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"| {what} | {value} |" for what, value in rows)


def _scores(scores: Mapping[str, float], measure: str = "Spearman × 100") -> str:
    rows = _rows((task, f"{score:.2f}") for task, score in scores.items())
    if scores:
        return f"| task | {measure} |\n|---|---|\n{rows}"
    return "No task was scored."


def head_card(name: str, encoder: Encoder, scores: Mapping[str, float]) -> str:
    """The card of an encoder with unchanged weights, in Markdown with the header that the hub reads.

    `scores` are Spearman × 100, by task.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> "up to 64 tokens" in head_card("small", encoder, {"STS-B": 70.0})
    True
    """
    base = Path(encoder.name).resolve().name if Path(encoder.name).is_dir() else encoder.name
    code = encoder.view.head.code
    dimension = encoder.view.columns
    whitening = encoder.view.head.whitening
    rows = [("encoder", f"`{base}`"), ("head", encoder.view.head.summary)]
    rows += [("sentences", f"up to {encoder.max_length} tokens"), *_whitening_rows(whitening)]
    text = filled(
        "card-head",
        dimension=dimension,
        base=base,
        whitened="" if whitening is None else ", then whitened",
        version=__version__,
        rows=_rows(rows),
        scores=_scores(scores),
        same="Both compute the same vectors up to rounding" + (", and jaxwhiten their code." if code else "."),
        use=filled("card-use-code" if code else "card-use"),
    )
    if code is not None:
        floats = f"{4 * dimension:,}"
        text += filled("card-code", file=CODE_FILE, name=code.name, bytes=code.nbytes, floats=floats)
    if whitening is not None:
        text += filled("card-whitening", file=WHITENING_FILE)
    return card(name, text, base, _SENTENCES, *_SENTENCE_TAGS, *["whitening"] * (whitening is not None))


def _whitening_rows(whitening: Whitening | None) -> list[tuple[str, str]]:
    if whitening is None:
        return []
    facts = whitening.provenance
    k = whitening.n_components or whitening.n_features_in_
    rows = [
        ("whitening fitted on", f"{counted(facts['n'], 'rows')} of {facts.get('corpus') or 'an unnamed corpus'}"),
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
    recipe: Fields,
    scores: Mapping[str, float],
    before: Mapping[str, float],
) -> str:
    """The card of a fine-tuned encoder, in Markdown with the header that the hub reads.

    `recipe` holds the settings of the run, `scores` scores × 100 by name, `before` the base model's.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> text = model_card("tuned", encoder, base_model="bert", recipe={}, scores={"STS-B": 70.0}, before={})
    >>> "70.00" in text
    True
    """
    modules = " > ".join(step.words() for step in encoder.view.head.steps)
    all_scores = {**scores, **{f"{task}, base model": score for task, score in before.items()}}
    worse = "\n\nTraining made the model worse." if any(scores[task] < score for task, score in before.items()) else ""
    text = filled(
        "card-trained",
        dimension=encoder.dimension,
        base=base_model,
        version=__version__,
        modules=modules,
        max_length=encoder.max_length,
        scores=_scores(all_scores, "score × 100"),
        worse=worse,
        use=filled("card-use"),
        recipe=json.dumps(dict(recipe), indent=2, ensure_ascii=False),
    )
    return card(name, text, base_model, _SENTENCES, *_SENTENCE_TAGS)
