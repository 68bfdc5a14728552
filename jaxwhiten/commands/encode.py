"""`jaxwhiten encode INPUT --output FILE`: sentences to vectors, whitened or not, in bounded memory."""

from __future__ import annotations

import argparse
import collections
import itertools
from collections.abc import Iterator
from typing import Any

from jaxwhiten.commands.arguments import VECTORS, Output, Report, Source, add, add_knobs, add_model, whitened_encoder
from jaxwhiten.commands.texts import add_texts, nonempty, sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_texts(parser)
    endings = ".npy (float32, or uint8 codes), .parquet (text and embedding) or .jsonl; - for JSON lines on stdout"
    add(parser, "-o --output OUTPUT", endings, type=Output(endings=VECTORS), required=True)
    add_model(parser)
    add(parser, "--whitening FILE", "a saved whitening or code to apply to the vectors", type=Source)
    add_knobs(parser)
    add(parser, "--normalize", "scale the vectors to unit length")
    add(parser, "--block N", "sentences held at once; default: 16384", dest="block_size", type=int, default=16_384)


def run(args: argparse.Namespace) -> Report | None:
    from jaxwhiten.commands.vectors import vector_writer, written
    from jaxwhiten.head import Normalize
    from jaxwhiten.terminal import counted, note
    from jaxwhiten.text import is_blank

    texts = nonempty(sentences(args.input, args.format, args.column), args.input)
    encoder = whitened_encoder(args, normalize=args.normalize)
    if args.normalize and not args.whitening:
        encoder = encoder.with_view(encoder.view.then(Normalize()))
    n = blank = 0
    code = encoder.view.head.code
    begun = collections.deque[list[str]]()
    if code is not None and code.space is None:  # queries of these codes are encoded by this encoder
        code = code.in_space(encoder.view.uncoded.space)
    with vector_writer(args.output, encoder.dimension, encoder.view.head.dtype, code) as write:
        blocks: Any = encoder.encode_stream(remembered(texts, args.block_size, begun), block_size=args.block_size)
        for block in blocks:
            write(text_block := begun.popleft(), block)
            n = n + len(block)
            blank = blank + sum(map(is_blank, text_block))
    if blank:
        note(f"{counted(blank, 'blank texts')}; encode keeps them, index skips them")
    return written(args.output, n, encoder.dimension, code)


def remembered(texts: Iterator[str], size: int, begun: collections.deque[list[str]]) -> Iterator[str]:
    """Passes texts on and appends each block to `begun` first, because an encoder reads up to two blocks ahead."""
    while block := list(itertools.islice(texts, size)):
        begun.append(block)
        yield from block
