"""`jaxwhiten score`: scores an encoder on one's own pairs, searches, or texts without judgments."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated, Any, Unpack

from cyclopts import Parameter

from jaxwhiten.commands.arguments import (
    FittedOptions,
    Report,
    Scaling,
    Sizes,
    Source,
    TableOptions,
    encode,
    say_gamma,
)
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.options import WhiteningParameters, check_bounds


def score(
    data: Source,
    /,
    *,
    columns: Annotated[Sequence[str], Parameter(name="--column")] = (),
    queries: Source | None = None,
    corpus: Source | None = None,
    versus: Source | None = None,
    bytes: Sizes = (),
    n_components: Annotated[Sizes, Parameter(name=("-k", "--dimension"))] = (),
    no_cache: bool = False,
    encoder: FittedOptions = FittedOptions(),
    **knobs: Unpack[Scaling],
) -> Report:
    """Score an encoder on your own pairs, searches or texts, raw, whitened and in fewer bytes.

    Texts need no scores: of the first ten documents by float32 vectors, it shows the share that smaller ones find.

    Args:
      data: a .tsv, .csv, .jsonl or .parquet table with two sentences and a score in each row, or with the columns query
        and document (or positive); or a BEIR folder; or texts: .txt (one per line) or a table with a column of them
      columns: columns of the pairs: repeat it for both sentences and the score; default: usual names, such as
        sentence1, sentence2 and score; or the text column
      queries: texts that search those of data, in any of these formats; default: 300 held-out texts
      corpus: more documents to search: .txt (one per line), .tsv, .csv, .jsonl or .parquet, or a folder of such files
      versus: Hugging Face model ID or folder of an encoder to compare with
      bytes: sizes of codes to score, with int8 and binary vectors
      n_components: dimensions of whitenings to fit on the texts; default: all if another whitening option is set
      no_cache: do not keep the vectors in the cache

    Examples:
      jaxwhiten score docs.txt --queries queries.txt --bytes 24 48 96
      jaxwhiten score pairs.csv -k 128 --gamma 0
    """
    check_bounds(WhiteningParameters(**knobs))
    for name, sizes in (("bytes", bytes), ("n_components", n_components)):
        for size in sizes:
            Bounds(1).check(name, size)

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.io import to_json
    from jaxwhiten.scoring import evaluate, read
    from jaxwhiten.terminal import named

    if queries is not None or _is_texts(data):
        asked = None if queries is None else list(sentences(queries))
        rows: Any = read(list(sentences(data, TableOptions(column=columns))), queries=asked)
    else:
        rows = read(data, columns)

    def encoded(one: Encoder, texts: Sequence[str], role: str | None) -> Any:
        return encode(one.view.in_role(role), texts, cache=not no_cache)

    model = encoder.load()
    ks = tuple(n_components)
    if model.view.head.whitening is None:
        ks = ks or ((0,) if knobs and not bytes else ())
    elif ks or knobs:
        raise InputError(f"{encoder.name}: already includes a whitening, scored unchanged: omit the whitening options.")
    result = evaluate(
        model,
        rows,
        encode=encoded,
        bytes=tuple(bytes),
        k=ks,
        versus=Encoder.from_pretrained(versus, max_length=encoder.max_length) if versus else None,
        corpus=None if corpus is None else sentences(corpus),
        **knobs,
    )
    result = dataclasses.replace(result, data=data)
    if "gamma" not in knobs and any("whitened" in row.name for row in result.rows) and not model.view.head.whitening:
        say_gamma(model)
    return Report(named(str(result)), {**to_json(result), "measure": result.measure, "verdict": named(result.verdict)})


def _is_texts(path: str) -> bool:
    """Whether a file has texts, and neither pairs nor queries."""
    from jaxwhiten.datasets.columns import OTHER, TEXT, roles
    from jaxwhiten.datasets.tables import read_header, table_format

    return path.lower().endswith(".txt") or (
        os.path.isfile(path)
        and table_format(path) is not None
        and {*roles(read_header(path)).values()} - {OTHER} == {TEXT}
    )
