"""`jaxwhiten fit INPUT --output PATH`: fits an encoder with its whitening, the whitening alone, or its moments."""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import (
    Guarded,
    Output,
    Report,
    add,
    add_knobs,
    add_model,
    add_tuned,
    check_new,
    check_sizes,
    encode,
    knobs,
    load_encoder,
)
from jaxwhiten.commands.texts import STDIN, add_texts, is_parts, nonempty, sentences
from jaxwhiten.errors import DataError, InputError, warn
from jaxwhiten.options import DEFAULTS, Rule, check_options
from jaxwhiten.space import check_space
from jaxwhiten.terminal import counted
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.whitening import Moments

_FILE = ".safetensors"
_RULES = (
    Rule(
        ("command",),
        "Nothing to write: pass --output PATH for a whitening, --moments FILE for moments, or both.",
        without=("output", "moments"),
    ),
    Rule(
        (*DEFAULTS, "bytes"),
        "-k, --beta, --gamma, --shrinkage and --bytes require a whitening: pass --output PATH, too.",
        without=("output",),
    ),
    Rule(
        ("folder",),
        f"{{output}}: vectors and moments give a whitening, a {_FILE} file; a folder needs sentences.",
        without=("sentences",),
    ),
)
_KEPT = 1 << 17  # vectors of up to this many sentences are cached, so that an index of them need not encode again


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_texts(
        parser,
        "sentences, vectors in a .npy file, a folder of `jaxwhiten embed`, or moments files of parts of a corpus",
        nargs="+",
    )
    what = "a folder for the encoder with its whitening, for --model of every command; or a .safetensors file for the"
    add(parser, "-o --output PATH", f"{what} whitening alone", type=Guarded)
    moments = "file for the moments, which can be merged and used to fit any setting"
    add(parser, "--moments FILE", moments, type=Output("moments"))
    add_knobs(parser, fitting=True)
    add_tuned(parser)
    what = "add a code of N bytes per sentence; default: none. Vectors are whitened before they are coded if the"
    what += " encoder is not fine-tuned for similarity, or with -k, --beta, --gamma or --shrinkage"
    add(parser, "--bytes N", what, type=int)
    add_model(parser)
    add(parser, "--no-cache", "do not cache the vectors; by default those of up to 131072 sentences are cached")


def run(args: argparse.Namespace) -> Report:
    path = args.input[0]
    from_vectors = path != STDIN and args.format is None and path.lower().endswith(".npy")
    from_moments = all(map(_is_tensors, args.input))
    if len(args.input) > 1 and not from_moments:
        raise InputError(f"Expected one input, or moments files alone, got {' '.join(args.input):.200}.")
    _check_outputs(args, folder=not (from_vectors or from_moments))
    from jaxwhiten.whitening import Moments

    encoder = None
    provenance: Json = {"corpus": Path(path).name if path != STDIN else "stdin"}
    if from_moments:
        moments, provenance["corpus"] = _merged(args.input)
    elif from_vectors:
        from jaxwhiten.commands.vectors import open_vectors

        vectors = open_vectors(path)
        if not len(vectors):
            raise DataError(f"{path}: contains no vectors.")
        moments = Moments().update(vectors)
    elif is_parts(path):
        from jaxwhiten.encoding.encoder import encoder_of
        from jaxwhiten.runners import Parts

        parts = Parts(path)
        space = parts.plan.space
        encoder = encoder_of(space, tuned=parts.plan.tuned) if args.output else None
        if encoder is not None:
            _check_saving(args, encoder)
            check_space(path, space, encoder.documents.space, "embed the texts again")
        moments = parts.moments()
    else:
        filled = filter(None, map(str.strip, sentences(path, args.format, args.column)))
        texts = nonempty(filled, path)
        encoder = load_encoder(args)
        check_sizes(args, encoder.dimension)
        _check_saving(args, encoder)
        first = [] if args.no_cache else list(itertools.islice(texts, _KEPT + 1))
        if args.no_cache or len(first) > _KEPT:
            moments = encoder.documents.moments(itertools.chain(first, texts))
        else:
            moments = Moments().update(encode(args, encoder, first, "document"))
        provenance |= encoder.documents.provenance()
    return _write(args, moments, provenance, encoder)


def _is_tensors(path: str) -> bool:
    """Whether a file is of safetensors, as those of moments are."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < os.path.getsize(path)


def _merged(paths: list[str]) -> tuple[Moments, str]:
    """The moments of all rows of several files, and the names of their corpora."""
    from jaxwhiten.whitening import Moments

    total = Moments()
    corpora = list[str]()
    firsts = dict[tuple[int, bytes, bytes], str]()
    for path in paths:
        part = Moments.load(path)
        total.merge(part, path)
        if (first := firsts.setdefault((part.n, part.mean.tobytes(), part.M2.tobytes()), path)) is not path:
            warn(f"{path}: contains the same moments as {first}: its rows count twice.")
        corpora.append(str(part.provenance.get("corpus") or path))
    return total, " + ".join(corpora)


def _check_saving(args: argparse.Namespace, encoder: Encoder) -> None:
    if args.output and Path(args.output).suffix != _FILE:
        from jaxwhiten.encoding.encoder import check_saving

        check_saving(encoder, args.output)


def _check_outputs(args: argparse.Namespace, *, folder: bool) -> None:
    """Raises InputError for a command that would write nothing, or not what its output's name says.

    A folder can be written only if there is an encoder.
    """
    is_folder = args.output and (args.output.endswith("/") or Path(args.output).is_dir())
    check_options(_RULES, {**vars(args), "command": True, "folder": is_folder, "sentences": folder})
    if not args.output:
        return
    ending = Path(args.output).suffix
    if ending == _FILE or not (ending or folder):
        Output("whitening" if args.bytes is None else "spectrum")(args.output)
    else:
        Output("model", folder=True, what=f"a whitening is a {_FILE} file or a model folder")(args.output)
    check_new(args.output, args.overwrite)


def _write(args: argparse.Namespace, moments: Moments, provenance: Json, encoder: Encoder | None) -> Report:
    """Writes the moments, the whitening, or both."""
    lines = []
    facts = {"output": args.output, "moments": args.moments, "rows": moments.n}
    if args.moments:
        moments.save(args.moments, provenance)
        lines.append(f"{args.moments}: moments of {counted(moments.n, 'rows')}, {len(moments.mean)} dimensions")
    if args.output:
        from jaxwhiten.codes.fit import fit
        from jaxwhiten.terminal import note
        from jaxwhiten.whitening.whitening import alike

        moments.provenance |= provenance
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*the rank of the data is 0")  # an error below
            whitening, code, why = fit(moments, bytes=args.bytes, tuned=args.tuned, **knobs(args))
        if whitening is not None and whitening.rank_ < 1:
            raise InputError(f"Cannot whiten: {alike(moments.n)}")
        words = []
        facts |= {"bytes": args.bytes}
        if whitening is not None:
            d = whitening.n_features_in_
            k = whitening.n_components or d
            beta = f"β={whitening.beta:g}, " if whitening.beta != 1 else ""
            words.append(f"a whitening from {d} to {k} dimensions ({beta}γ={whitening.gamma:g})")
            facts |= {"dimensions": k, **whitening.get_params(), "rank": whitening.rank_}
        if code is not None:
            words.append(f"a code of {code.nbytes} bytes")
        what = " and ".join(words)
        if encoder is None or Path(args.output).suffix == _FILE:
            if whitening is not None and code is not None:
                raise InputError(f"{args.output}: a whitening and a code need a model folder: pass --output DIR/.")
            fitted = whitening or code
            assert fitted is not None
            fitted.save(args.output)
        else:
            from jaxwhiten.export import export_sentence_transformer

            small = encoder if whitening is None else encoder.with_whitening(whitening)
            if code is not None:
                small = small.with_code(code)
            export_sentence_transformer(args.output, small)
            what = f"{encoder.name} with {what}"
        lines.append(f"{args.output}: {what}, fitted on {counted(moments.n, 'rows')}")
        if why:
            note(why)
    return Report("\n".join(lines), facts)
