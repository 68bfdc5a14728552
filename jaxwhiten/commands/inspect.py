"""`jaxwhiten inspect`: shows a whitening, moments, an index or a model."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import Report, Source
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.codes import Code

_ORIGIN = ("model", "pooling", "max_length", "corpus")


def inspect(file: Source, /) -> Report:
    """Show the contents of a whitening, moments file, index or model.

    Args:
      file: a file of a whitening, a code or moments, an index, or the folder of a model

    Examples:
      jaxwhiten inspect docs.db
    """
    from jaxwhiten.codes import Code, load_fitted
    from jaxwhiten.errors import FormatError
    from jaxwhiten.search.header import is_index
    from jaxwhiten.whitening import Moments, Whitening, WhiteningWarning, spectrum

    if is_index(file):
        return _listed(file, _index(file))
    if os.path.isdir(file):
        return _listed(file, _model(Path(file)))
    fitted = load_fitted(file)
    if isinstance(fitted, Code):
        return _listed(file, _code(fitted))
    kind = fitted.name
    if isinstance(fitted, Moments):
        if not fitted.n:
            raise FormatError(f"{file}: moments of no rows.")
        with warnings.catch_warnings():  # the commands themselves warn of few rows
            warnings.simplefilter("ignore", WhiteningWarning)
            fitted = Whitening.from_moments(fitted)
    provenance = {key: value for key, value in fitted.provenance.items() if value is not None}
    params = fitted.get_params() if kind == "whitening" else None
    facts: Json = {"kind": kind, "params": params, **spectrum(fitted), "provenance": provenance}
    shares = {row["k"]: f"{row['share']:.2%}" for row in facts["explained"]}
    shown = {**facts, "explained": shares, "provenance": {key: provenance[key] for key in _ORIGIN if key in provenance}}
    return _listed(file, shown, {**facts, "eigenvalues": fitted.eigenvalues_.tolist()})


def _listed(file: str, shown: Json, facts: Json | None = None) -> Report:
    """Facts, with a line for each that is shown."""
    lines = [f"  {name:<12}{_words(value)}" for name, value in shown.items()]
    return Report("\n".join(lines), {"file": file, **(facts or shown)})


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value in (None, "") else str(value)


def _model(folder: Path) -> Json:
    """The facts of a model, and the modules in its files that no vector depends on, with their numbers of tensors."""
    from jaxwhiten.head import longest_text, own_pooling
    from jaxwhiten.models.loading import look_at
    from jaxwhiten.views.loading import read_parts

    config, unused = look_at(folder)
    settings, head = read_parts(folder, config, str(folder), own_pooling(folder), bare=False)
    return {
        "kind": "model",
        **{name: getattr(config, name) for name in ("model_type", "num_layers", "hidden_size", "parameters")},
        "head": head and head.summary,
        "max_length": longest_text(folder, config),
        **({"codes": _design(head.code)} if head and head.code else {}),
        "prompts": dict(settings.prompts),
        "unused": unused,
    }


def _index(path: str) -> Json:
    """What an index says of itself."""
    from jaxwhiten.codes import Code
    from jaxwhiten.search import load_index

    index = load_index(path, read_only=True)
    codes = index.codes and {"name": index.codes.name, "bytes": index.codes.bytes}
    return {
        "kind": "index",
        **{name: getattr(index, name) for name in ("backend", "options", "size", "dimension")},
        "codes": _design(index.fitted) if isinstance(index.fitted, Code) else codes,
        "rescore": index.rescore,
        "ids": index.id_type or "numbers",
        "texts": index.has_texts,
        "removed": index.removed,
        "whitening": index.whitening and index.whitening["k"],
        "space": index.space and index.space.record(),
    }


def _design(code: Code) -> Json:
    """The name and size of a code; of a spectrum code also the distortion, and the least one of any such code."""
    facts = code.provenance
    entries: Json = {"name": code.name, "bytes": code.nbytes}
    if "distortion" in facts:
        entries["axes"] = code.affine.outputs
        entries |= {name: round(facts[name], 4) for name in ("distortion", "bound")}
    return entries


def _code(code: Code) -> Json:
    """The facts of a code."""
    provenance = code.provenance
    facts = {"kind": "code", **_design(code), "rows": provenance["n"], "dimension": provenance["dimension"]}
    return facts | {name: provenance[name] for name in _ORIGIN if provenance.get(name)}
