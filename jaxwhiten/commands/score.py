"""`jaxwhiten score`: scores an encoder on one's own pairs, or queries and documents."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Unpack

from cyclopts import Parameter

from jaxwhiten.commands.arguments import (
    EncoderOptions,
    Report,
    Scaling,
    Sizes,
    Source,
    check_knobs,
    encode,
    say_gamma,
)
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import Bounds, InputError


def score(
    data: Source,
    /,
    *,
    columns: Annotated[Sequence[str], Parameter(name="--column")] = (),
    corpus: Source | None = None,
    versus: Source | None = None,
    bytes: Sizes = (),
    n_components: Annotated[Sizes, Parameter(name=("-k", "--dimension"))] = (),
    no_cache: bool = False,
    encoder: EncoderOptions = EncoderOptions(),
    **knobs: Unpack[Scaling],
) -> Report:
    """Score an encoder on your own pairs or searches, raw, whitened and in fewer bytes.

    Args:
      data: a .tsv, .csv, .jsonl or .parquet table with two sentences and a score in each row, or with the columns query
        and document (or positive); or a BEIR folder
      columns: columns of the pairs: repeat it for both sentences and the score; default: usual names, such as
        sentence1, sentence2 and score
      corpus: more documents to search: .txt (one per line), .tsv, .csv, .jsonl or .parquet, or a folder of such files
      versus: Hugging Face model ID or folder of an encoder to compare with
      bytes: sizes of codes to score, with int8 and binary vectors
      n_components: dimensions of whitenings to fit on the texts; default: all, none with --bytes
      no_cache: do not keep the vectors in the cache

    Examples:
      jaxwhiten score pairs.csv -k 128 --gamma 0 --bytes 24 48
      jaxwhiten score searches.tsv --versus static/
    """
    check_knobs(knobs)
    for name, sizes in (("bytes", bytes), ("n_components", n_components)):
        for size in sizes:
            Bounds(1).check(name, size)

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.io import to_json
    from jaxwhiten.scoring import evaluate, read
    from jaxwhiten.terminal import named

    rows = read(data, columns)
    model = encoder.load()
    ks = tuple(n_components)
    if model.view.head.whitening is None:
        ks = ks or (() if bytes else (0,))
    elif ks or knobs:
        raise InputError(f"{encoder.name}: already includes a whitening, scored unchanged: omit the whitening options.")
    result = evaluate(
        model,
        rows,
        encode=functools.partial(encode, cache=not no_cache),
        bytes=tuple(bytes),
        k=ks,
        versus=Encoder.from_pretrained(versus, max_length=encoder.max_length) if versus else None,
        corpus=None if corpus is None else sentences(corpus),
        **knobs,
    )
    result = dataclasses.replace(result, data=data)
    if "gamma" not in knobs and model.view.head.whitening is None:
        say_gamma(model)
    return Report(named(str(result)), {**to_json(result), "measure": result.measure, "verdict": named(result.verdict)})
