"""`jaxwhiten fit INPUT --output PATH`: fits an encoder with its whitening, the whitening alone, or its moments."""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxwhiten import io
from jaxwhiten.commands.arguments import (
    Report,
    add,
    add_knobs,
    add_model,
    add_tuned,
    check_folder,
    check_sizes,
    encode,
    knobs,
    load_encoder,
)
from jaxwhiten.commands.texts import STDIN, add_texts, is_parts, nonempty, sentences
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.space import check_space

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.whitening import Moments

_FILE = ".safetensors"
_KEPT = 1 << 17  # vectors of up to this many sentences are cached, so that an index of them need not encode again


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_texts(parser, "sentences, vectors in a .npy file, or a folder of `jaxwhiten embed`")
    add_outputs(
        parser,
        "PATH",
        "a folder for the encoder with its whitening, for --model of every command; or a .safetensors file "
        "for the whitening alone",
    )
    add_model(parser)
    add(parser, "--no-cache", "do not cache the vectors; by default those of up to 131072 sentences are cached")


def add_outputs(parser: argparse.ArgumentParser, metavar: str, what: str) -> None:
    """Adds --output, --moments and the parameters of the whitening."""
    add(parser, f"-o --output {metavar}", what)
    add(parser, "--moments FILE", "file for the moments, which can be merged and used to fit any setting")
    add_knobs(parser, fitting=True)
    add_tuned(parser)
    add(parser, "--bytes N", "add a code of N bytes per sentence after the whitening; default: none", type=int)


def run(args: argparse.Namespace) -> Report:
    parts = None
    from_vectors = args.input != STDIN and args.format is None and args.input.lower().endswith(".npy")
    check_outputs(args, folder=not from_vectors)
    from jaxwhiten.whitening import Moments

    if from_vectors:
        from jaxwhiten.commands.vectors import open_vectors

        vectors, encoder = open_vectors(args.input), None
        if not len(vectors):
            raise DataError(f"{args.input}: contains no vectors.")
        moments = Moments().update(vectors)
    elif is_parts(args.input):
        from jaxwhiten.encoding.encoder import encoder_of
        from jaxwhiten.runners import Parts

        parts = Parts(args.input)
        made = parts.plan.encoding
        encoder = encoder_of(made) if args.output else None
        if encoder is not None:
            now = encoder.space(prompt=encoder.prompt_for("document"))
            check_space(args.input, made, now, "embed the texts again")
        moments = parts.moments()
    else:
        filled = filter(None, map(str.strip, sentences(args.input, args.format, args.column)))
        texts = nonempty(filled, args.input)
        encoder = load_encoder(args)
        check_sizes(args, encoder.dimension)
        first = [] if args.no_cache else list(itertools.islice(texts, _KEPT + 1))
        if args.no_cache or len(first) > _KEPT:
            moments = encoder.moments(itertools.chain(first, texts), prompt=encoder.prompt_for("document"))
        else:
            moments = Moments().update(encode(args, encoder, first, "document"))
    corpus = Path(args.input).name if args.input != STDIN else "stdin"
    told = encoder.encoding(prompt=encoder.prompt_for("document")) if encoder and not parts else {}
    return write_outputs(args, moments, {"corpus": corpus, **told}, encoder)


def check_outputs(args: argparse.Namespace, *, folder: bool = False) -> None:
    """Raises InputError for a command that would write nothing, or not what its output's name says.

    A folder can be written only if there is an encoder.
    """
    if not args.output and not args.moments:
        raise InputError("Nothing to write: pass --output PATH for a whitening, --moments FILE for moments, or both.")
    if not args.output and (knobs(args) or args.bytes is not None):
        raise InputError("-k, --beta, --gamma, --shrinkage and --bytes require a whitening: pass --output PATH, too.")
    if args.moments:
        io.check_file(args.moments, "moments")
    if not args.output:
        return
    ending = Path(args.output).suffix
    if not folder and (args.output.endswith("/") or Path(args.output).is_dir()):
        raise InputError(f"{args.output}: vectors alone give a whitening, a {_FILE} file; a folder needs sentences.")
    if ending == _FILE or not (ending or folder):
        io.check_file(args.output, "whitening" if args.bytes is None else "spectrum")
    else:
        check_folder(args.output, f"a whitening is a {_FILE} file or a model folder")


def write_outputs(
    args: argparse.Namespace, moments: Moments, provenance: dict[str, Any], encoder: Encoder | None = None
) -> Report:
    """Writes the moments, the whitening, or both."""
    lines, facts = [], {"output": args.output, "moments": args.moments, "rows": moments.n}
    if args.moments:
        moments.save(args.moments, provenance)
        lines.append(f"{args.moments}: moments of {moments.n:,} rows, {len(moments.mean)} dimensions")
    if args.output:
        from jaxwhiten.codes import SpectrumCode
        from jaxwhiten.progress import note
        from jaxwhiten.whitening import Whitening, choose_gamma

        settings, code, chosen = knobs(args), None, None
        if "gamma" not in settings:
            moments.provenance |= provenance
            chosen = choose_gamma(moments, args.tuned)
            settings["gamma"] = chosen.gamma
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*the rank of the data is 0")  # an error below
            whitening, what = Whitening.from_moments(moments, **settings, provenance=provenance), "whitening"
        if whitening.rank_ < 1:
            raise InputError(
                f"Cannot whiten: the {moments.n:,} vectors are identical up to rounding. Use texts that differ."
            )
        if args.bytes is not None:
            code = SpectrumCode(bytes=args.bytes).fit(whitening)
            what = f"a code of {args.bytes} bytes after the whitening"
        if encoder is None or Path(args.output).suffix == _FILE:
            (whitening if code is None else code).save(args.output)
        else:
            from jaxwhiten.export import export_sentence_transformer

            coded = encoder.with_whitening(whitening) if code is None else encoder.with_code(code)
            export_sentence_transformer(args.output, coded)
            what = f"{encoder.name} with its {what.removeprefix('a ')}"
        k = whitening.n_components or whitening.n_features_in_
        lines.append(
            f"{args.output}: {what} from {whitening.n_features_in_} to {k} dimensions, β={whitening.beta:g},"
            f" γ={whitening.gamma:g}, fitted on {moments.n:,} rows, rank {whitening.rank_}"
        )
        if chosen is not None:
            note(chosen)
        facts |= {"dimensions": k, "bytes": args.bytes, **whitening.get_params(), "rank": whitening.rank_}
    return Report("\n".join(lines), facts)
