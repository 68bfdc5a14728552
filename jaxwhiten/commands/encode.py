"""`jaxwhiten encode INPUT --output FILE`: sentences to vectors, whitened or not, in bounded memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from jaxwhiten.commands.arguments import add, add_knobs, add_model, whitened_encoder
from jaxwhiten.commands.texts import add_texts, nonempty, sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_texts(parser)
    endings = ".npy (float32, or uint8 codes), .parquet (text and embedding) or .jsonl; - for JSON lines on stdout"
    add(parser, "-o --output OUTPUT", endings, required=True)
    add_model(parser)
    add(parser, "--whitening FILE", "a saved whitening to apply to the vectors")
    add_knobs(parser)
    add(parser, "--normalize", "scale the vectors to unit length")
    add(parser, "--block N", "sentences held at once; default: 16384", dest="block_size", type=int, default=16_384)


def run(args: argparse.Namespace) -> None:
    from jaxwhiten.commands.vectors import check_output, vector_writer
    from jaxwhiten.head import Normalize

    check_output(args.output)
    texts = Remembered(nonempty(sentences(args.input, args.format, args.column), args.input))
    encoder = whitened_encoder(args, normalize=args.normalize)
    if args.normalize and not args.whitening:
        encoder = encoder.then(Normalize())
    n = 0
    code = encoder.head.code
    with vector_writer(args.output, encoder.dimension, encoder.head.dtype, code) as write:
        blocks: Any = encoder.encode_stream(texts, block_size=args.block_size)
        for block in blocks:
            write(texts.take(len(block)), block)
            n += len(block)
    if args.output != "-":
        what = "vectors of {} dimensions" if code is None else "codes of {} bytes"
        print(f"{args.output}: {n:,} {what.format(encoder.dimension)}", file=sys.stderr)
    if texts.blank:
        print(f"note: {texts.blank:,} texts are blank; encode keeps them, index leaves them out", file=sys.stderr)


class Remembered:
    """Passes sentences on and keeps those not yet taken back, at most two blocks of an encoder's stream.

    Another thread may read them meanwhile, which `itertools.tee` refuses.
    """

    def __init__(self, stream: Iterable[str]):
        self._stream = stream
        self._kept: list[str] = []
        self.blank = 0

    def __iter__(self) -> Iterator[str]:
        for sentence in self._stream:
            self.blank += not sentence.strip()
            self._kept.append(sentence)
            yield sentence

    def take(self, n: int) -> list[str]:
        """The next n sentences that were passed on."""
        taken, self._kept[:n] = self._kept[:n], []
        return taken
