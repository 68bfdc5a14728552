"""`jaxwhiten distill`: a table of token vectors that replaces an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jaxwhiten.commands.arguments import EncoderOptions, Output, Report, Source, TableOptions, new_folder
from jaxwhiten.commands.texts import nonempty
from jaxwhiten.commands.texts import sentences as read_sentences


def distill(
    *,
    output: Output,
    corpus: Source | None = None,
    k: Annotated[int, Parameter(name=("-k", "--dimension"))] = 256,
    gamma: float = 1.0,
    sif: float = 1e-3,
    no_fit: bool = False,
    sentences: int = 20_000,
    half: bool = False,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: EncoderOptions = EncoderOptions(),
) -> Report:
    """Distill an encoder into a table of token vectors.

    Args:
      output: model folder to write, for --model of every command; sentence-transformers and model2vec load it, too
      corpus: sentences for token counts and for fitting the teacher's vectors: .txt (one per line), .tsv, .csv, .jsonl
        or .parquet, - for stdin; default: none, and Zipf's law, as for fewer than 300
      k: dimensions to keep
      gamma: power of the whitening, 0 to 1
      sif: weight A of a token of frequency p: A / (A + p)
      no_fit: do not fit the rows to the teacher's vectors
      sentences: number of corpus sentences that the teacher encodes
      half: write float16, in half the bytes
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten distill --model jaxwhiten-tiny --pooling mean --corpus sentences.txt -k 64 -o static/
    """
    new_folder(output, "model", overwrite=overwrite)
    texts = None
    if corpus is not None:
        filled = (text for text in read_sentences(corpus, table.format, table.column) if text.strip())
        texts = nonempty(filled, corpus)

    from jaxwhiten.encoding import Vocabulary, distil

    vocabulary = Vocabulary.read(encoder.load(), texts, sentences=sentences)
    fit = bool(vocabulary.drawn) and not no_fit
    static = distil(vocabulary, k, gamma=gamma, sif=sif, fit=fit)
    folder = static.save(output, dtype="float16" if half else None)
    size = (Path(folder) / "model.safetensors").stat().st_size
    text = f"{output}: {encoder.name} as a table of {size / 1e6:.1f} MB, {k} dimensions"
    return Report(text, {"output": output, "model": encoder.name, "bytes": size, "dimensions": k})
