"""`jaxwhiten fit`: fits an encoder with its whitening, the whitening alone, or its moments."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from jaxwhiten.commands.arguments import (
    FittedOptions,
    Inputs,
    Knobs,
    Output,
    Place,
    Report,
    TableOptions,
    check_sizes,
    encode,
    new_file,
    new_folder,
)
from jaxwhiten.commands.texts import STDIN, is_parts, nonempty, sentences
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.options import WhiteningParameters, check_bounds
from jaxwhiten.terminal import counted
from jaxwhiten.types import Fields, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.scoring import Evaluation
    from jaxwhiten.whitening import Moments

_FILE = ".safetensors"
_KEPT = 1 << 17  # sentences whose vectors are cached, so that an index of them need not encode again
_FEW = 60  # sentences, of which too few can be held out
_SCORED = 1 << 13  # sentences on which the loss of a code is measured


def fit(
    *input: Inputs,
    output: Output | None = None,
    bytes: int | None = None,
    moments: Place | None = None,
    no_cache: bool = False,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: FittedOptions = FittedOptions(),
    **knobs: Unpack[Knobs],
) -> Report:
    """Fit a whitening or code, for a model folder that all commands load.

    Vectors are whitened before they are coded if the encoder is not fine-tuned for similarity, or with -k, --beta
    or --gamma. Of --bytes, the loss is shown for held-out sentences; the code is fitted on all.

    Args:
      input: sentences: .txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files, - for stdin;
        vectors in a .npy file, a folder of `jaxwhiten embed`, or moments files of parts of a corpus
      output: a folder for the encoder with its whitening, for --model of every command; or a .safetensors file for the
        whitening alone
      bytes: add a code of this many bytes per sentence; default: none
      moments: file for the moments, which can be merged and used to fit any setting
      no_cache: do not cache the vectors; by default those of the first 131072 sentences are cached
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten fit sentences.txt --bytes 96 -o small/
      jaxwhiten fit moments-1.safetensors moments-2.safetensors -k 128 -o whitening.safetensors
    """
    path = input[0]
    from_vectors = table.format is None and path.lower().endswith(".npy")
    from_moments = all(map(_is_tensors, input))
    if len(input) > 1 and not from_moments:
        raise InputError(f"Expected one input, or moments files alone, got {' '.join(input):.200}.")
    if moments:
        new_file(moments, "moments", overwrite=overwrite)
    if output:
        kind = "whitening" if bytes is None else "spectrum"
        _check_output(output, not (from_vectors or from_moments), kind, overwrite)
    elif knobs or bytes:
        raise InputError("`n_components`, `beta`, `gamma` and `bytes` require an `output`: pass it, too.")
    elif not moments:
        raise InputError("Nothing to write: pass an `output` for a whitening, `moments` for moments, or both.")
    check_bounds(WhiteningParameters(**knobs))

    from jaxwhiten.io import to_json
    from jaxwhiten.whitening import Moments

    model = loss = None
    provenance: Json = {"corpus": Path(path).name if path != STDIN else "stdin"}
    if from_moments:
        fitted, provenance["corpus"] = _merged(input)
    elif from_vectors:
        from jaxwhiten.codes.files import open_vectors

        vectors = open_vectors(path)
        if not len(vectors):
            raise DataError(f"{path}: contains no vectors.")
        fitted = Moments().update(vectors)
    elif is_parts(path):
        from jaxwhiten.encoding.encoder import encoder_of
        from jaxwhiten.runners import Parts
        from jaxwhiten.space import check_space

        parts = Parts(path)
        if output:
            model = encoder_of(parts.plan.space, tuned=parts.plan.tuned)
            _check_saving(output, model)
            check_space(path, parts.plan.space, model.documents.space, "embed the texts again")
        fitted = parts.moments()
    else:
        filled = filter(None, map(str.strip, sentences(path, table)))
        texts = nonempty(filled, path)
        model = encoder.load()
        check_sizes(model.dimension, n_components=knobs.get("n_components"), bytes=bytes)
        _check_saving(output, model)
        first = list(itertools.islice(texts, _KEPT))
        vectors = encode(model.documents, first, cache=not no_cache)
        fitted = Moments().update(vectors).merge(model.documents.moments(texts))
        provenance |= model.documents.provenance()
        if output and bytes is not None and model.view.code is None and model.view.head.whitening is None:
            loss = _loss(model, first[:_SCORED], vectors, bytes, knobs)
    lines = []
    facts: Json = {"output": output, "moments": moments, "rows": fitted.n}
    if moments:
        fitted.save(moments, provenance)
        lines.append(f"{moments}: moments of {counted(fitted.n, 'rows')}, {len(fitted.mean)} dimensions")
    if output:
        fitted.provenance |= provenance
        text, more = _save(output, fitted, model, bytes, encoder.tuned, knobs)
        lines.append(text)
        facts |= more
    if loss is not None:
        lines += ["", str(loss)]
        facts["loss"] = to_json(loss.rows)
    return Report("\n".join(lines), facts)


def _loss(model: Encoder, texts: Sequence[str], vectors: Any, bytes: int, knobs: Fields) -> Evaluation | None:
    """What a code loses among some of the texts, measured by others of them; None of a few dozen texts."""
    from jaxwhiten.scoring import Unjudged, evaluate
    from jaxwhiten.whitening import WhiteningWarning

    if len({*texts}) < _FEW:
        return None
    row = {text: number for number, text in enumerate(texts)}

    def known(_: Encoder, some: Sequence[str], role: str | None) -> Any:
        return vectors[[row[text] for text in some]]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WhiteningWarning)  # the fit on all texts warns
        return evaluate(model, Unjudged.of(texts), bytes=bytes, resamples=1000, encode=known, **knobs)


def _is_tensors(path: str) -> bool:
    """Whether a file is of safetensors, as those of moments are."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(9)[4:] == b"\0\0\0\0{"  # a JSON header of less than 4 GB, after its size in eight bytes


def _merged(paths: Sequence[str]) -> tuple[Moments, str]:
    """The moments of all rows of several files, and the names of their corpora."""
    from jaxwhiten.whitening import Moments

    total = Moments()
    corpora = list[str]()
    for path in paths:
        part = Moments.load(path)
        total.merge(part, path)
        corpora.append(str(part.provenance.get("corpus") or path))
    return total, " + ".join(corpora)


def _check_saving(output: str | None, encoder: Encoder) -> None:
    from jaxwhiten.encoding.encoder import check_saving

    if output and Path(output).suffix != _FILE:
        check_saving(encoder, output)


def _check_output(output: str, folder: bool, kind: str, overwrite: bool) -> None:
    """Raises InputError for an output whose name says another kind; a folder can be written only with an encoder."""
    if not folder and (output.endswith("/") or Path(output).is_dir()):
        advice = f"vectors and moments give a whitening, a {_FILE} file; a folder needs sentences."
        raise InputError(f"{output}: {advice}")
    ending = Path(output).suffix
    if ending == _FILE or not (ending or folder):
        new_file(output, kind, overwrite=overwrite)
    else:
        new_folder(output, "model", overwrite=overwrite, what=f"a whitening is a {_FILE} file or a model folder")


def _save(
    output: str, moments: Moments, encoder: Encoder | None, bytes: int | None, tuned: bool | None, knobs: Fields
) -> tuple[str, Json]:
    """Writes the whitening, the code or both, alone or with their encoder."""
    from jaxwhiten.codes.fit import fit as fit_moments
    from jaxwhiten.terminal import note
    from jaxwhiten.whitening.whitening import alike

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the rank of the data is 0")  # an error below
        result = fit_moments(moments, bytes=bytes, tuned=tuned, **knobs)
    whitening, code, why = result
    if whitening is not None and whitening.rank_ < 1:
        raise InputError(f"Cannot whiten: {alike(moments.n)}")
    words = []
    facts: Json = {"bytes": bytes}
    if whitening is not None:
        d = whitening.n_features_in_
        k = whitening.n_components or d
        beta = f"β={whitening.beta:g}, " if whitening.beta != 1 else ""
        words.append(f"a whitening from {d} to {k} dimensions ({beta}γ={whitening.gamma:g})")
        facts |= {"dimensions": k, **whitening.get_params(), "rank": whitening.rank_}
    if code is not None:
        words.append(f"a code of {code.nbytes} bytes")
    what = " and ".join(words)
    if encoder is None or Path(output).suffix == _FILE:
        if whitening is not None and code is not None:
            raise InputError(f"{output}: a whitening and a code need a model folder: pass --output DIR/.")
        single: Any = whitening or code
        single.save(output)
    else:
        from jaxwhiten.export import export_sentence_transformer

        export_sentence_transformer(output, encoder.with_view(encoder.view.with_fit(result)))
        what = f"{encoder.name} with {what}"
    if why:
        note(why)
    return f"{output}: {what}, fitted on {counted(moments.n, 'rows')}", facts
