"""What commands share: types of arguments, options of encoders, tables and whitenings, and what is made from them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

from cyclopts import Parameter

from jaxwhiten.errors import Bounds, InputError, OutputError, check_name, warn
from jaxwhiten.types import Fields

if TYPE_CHECKING:
    import numpy as np

    from jaxwhiten.encoding import Encoder
    from jaxwhiten.views import View

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

# Control characters, line ends, direction changes and surrogates, which a terminal would act on.
_ACTIVE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# In addresses (//user:password@host) and in settings (password=...).
_PASSWORD = re.compile(
    r"""://[^\s'"]*@|(?i:(\w*(?:password|passwd|pwd|token|secret|api_?key)\s*=\s*)(?!\*)('[^']*'|[^\s&;,'"]+))"""
)

STDOUT = "-"


def printable(text: object) -> str:
    """A text on one line, with characters escaped that a terminal would act on."""
    return _ACTIVE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def one_line(message: object) -> str:
    """A message on one line, `printable` and without passwords and the names of their users."""
    text = _PASSWORD.sub(lambda found: f"{found[1]}***" if found[1] else "://", str(message))
    return printable(" ".join(text.split()))


def in_flags(message: object, flags: Mapping[str, str], joint: str = " ") -> str:
    """A message of the library with its parameters as flags: `gamma=0.5` as `--gamma 0.5`, and "`gamma`" as `--gamma`.

    `flags` maps the names in Python to flags, and `joint` stands between a flag and its value.
    """
    names = "|".join(map(re.escape, flags)) or "(?!)"
    value = r"""'([^']*)'|([^\s,;:()'"]*[^\s,;:()'".])"""
    pattern = rf"(?<![\w./-])({names})=(?:{value})|`({names})`"

    def spelled(match: re.Match[str]) -> str:
        name, quoted, bare, alone = match.groups("")
        return flags[alone] if alone else f"{flags[name]}{joint}{bare or quoted}"

    return re.sub(pattern, spelled, str(message))


class Report(NamedTuple):
    """What a command found or did: the text, and the facts for --json. Several texts may share the facts of one."""

    text: str
    facts: Fields | None = None


class SourceName(str):
    """What a command reads: a file, a folder, a pattern of them, or the name of a model."""


class PlaceName(str):
    """A file or folder that a command writes."""


if TYPE_CHECKING:
    Source = SourceName
    Place = PlaceName
else:  # shells complete the names of files where there is a Path
    Source = SourceName | Path
    Place = PlaceName | Path
Inputs = Annotated[Source, Parameter(required=True)]
Output = Annotated[Place, Parameter(name=("-o", "--output"))]
Sizes = Annotated[Sequence[int], Parameter(consume_multiple=True)]


def check_places(arguments: Fields) -> None:
    """Raises InputError for a place that would replace a source of the same run, or another place."""
    sources = list(_paths(arguments, SourceName))
    for name, place in _paths(arguments, PlaceName):
        real = Path(os.path.realpath(place))
        for other, value in sources:
            read = Path(os.path.realpath(value))
            holds = read.is_relative_to(real) or (os.path.exists(real) and real.is_relative_to(read))
            if real == read or (holds and os.path.exists(read)):  # of a name that is too long, too
                what = f"the input {value}" if other == "input" else f"{other}={str(value)!r}"
                raise InputError(f"{place}: would replace {what}. Specify a different `{name}`.")
        sources.append((name, place))


def _paths(arguments: Fields, kind: type[str]) -> Iterator[tuple[str, str]]:
    """The values of a type, with the names of their parameters."""
    for name, value in arguments.items():
        if dataclasses.is_dataclass(value):
            yield from _paths(vars(value), kind)
        for path in value if isinstance(value, list | tuple) else [value]:
            if isinstance(path, kind) and path not in ("", STDOUT):
                yield name, path


def new_file(path: str, kind: str, *, overwrite: bool) -> None:
    """Raises InputError, before any work, unless a file of a kind of `io.check_file` can be written."""
    from jaxwhiten import io

    io.check_file(path, kind)
    check_new(path, overwrite)


def new_vectors(path: str, *, overwrite: bool) -> None:
    """`new_file` for a file of vectors or codes, with their code beside it; `-` is JSON lines on stdout."""
    from jaxwhiten.codes.files import CODE, VECTORS

    if path != STDOUT:
        check_name(f"ending of the output {path}:", Path(path).suffix.lower(), VECTORS)
        new_file(path, "", overwrite=overwrite)
        check_new(f"{path}{CODE}", overwrite)


def written(path: str, rows: int, width: int, code: Any = None) -> Report | None:
    """The report of a file of vectors or codes; None for stdout, which has the vectors themselves."""
    if path == STDOUT:
        return None
    what = f"{width}-dimensional vectors" if code is None else f"codes of {width} bytes"
    facts = {"output": path, "rows": rows, "dimensions" if code is None else "bytes": width}
    return Report(f"{path}: {rows:,} {what}", facts)


def new_folder(path: str, kind: str, *, overwrite: bool, what: str = "the output is a folder") -> None:
    """Raises InputError, before any work, unless a folder of a kind of `io.whole_folder` can be written.

    Its name does not end like that of a file, of which `what` is said.
    """
    from jaxwhiten import io

    ending = re.fullmatch(r"\.[A-Za-z]\w*", Path(path).suffix)  # but not that of a model's name, such as v1.5
    if ending and not path.endswith("/") and not Path(path).is_dir():
        raise InputError(f"{path}: {what}, not a {ending[0]} file; a folder name with a dot must end with /.")
    io.check_folder(path, kind)
    check_new(path, overwrite)


def check_new(path: str, overwrite: bool) -> None:
    """Raises InputError for a path that has contents, unless they may be replaced."""
    if os.path.isdir(path):
        from jaxwhiten.io.locks import LOCK  # jaxwhiten.io imports NumPy, which no help needs

        full = bool(set(os.listdir(path)) - {LOCK})
    else:
        full = os.path.isfile(path) and os.path.getsize(path) > 0
    if full and not overwrite:
        raise InputError(f"{path}: exists already. Specify a different output, or replace it with --overwrite.")


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How texts are read.

    Attributes:
      format: txt, tsv, csv, jsonl or parquet; default: from the file extension, otherwise txt
      column: text column of a table; repeated, the columns are joined by a line break. Default: the only one, sentence
        or text
    """

    format: str | None = None
    column: Sequence[str] = ()


_ENCODER = Parameter(name="*", group="encoder")


@_ENCODER
@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """An encoder.

    Attributes:
      model: Hugging Face model ID or folder; default: sentence-transformers/all-MiniLM-L6-v2
      pooling: mean, cls, max, first_last_avg, embeddings_last_avg, last2avg, pooler, weightedmean,
        mean_sqrt_len_tokens, lasttoken, layers:I+J; auto is that of the model folder
      max_length: tokens per text; default: from the model folder
    """

    model: Source | None = None
    pooling: str = "auto"
    max_length: int | None = None

    @property
    def name(self) -> str:
        """The model, as given or by default."""
        return DEFAULT_MODEL if self.model is None else self.model

    def load(self) -> Encoder:
        """The encoder that the options name."""
        from jaxwhiten.encoding import Encoder

        return Encoder.from_pretrained(**{**vars(self), "model": self.name})


@_ENCODER
@dataclasses.dataclass(frozen=True, kw_only=True)
class PreciseOptions(EncoderOptions):
    """An encoder whose vectors are kept.

    Attributes:
      dtype: float32 or bfloat16; default: float32
    """

    dtype: str | None = None


@_ENCODER
@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedOptions(PreciseOptions):
    """An encoder whose vectors are whitened.

    Attributes:
      tuned: the encoder is fine-tuned for similarity, or with --untuned is not; default: judged by its vectors of
        shipped sentences
    """

    tuned: Annotated[bool | None, Parameter(negative="--untuned")] = None


class Scaling(TypedDict, total=False):
    """The parameters of a whitening that were specified, but for its dimension."""

    beta: Annotated[float, Parameter(help="fraction of the mean to subtract, 0 to 1; default: 1, or from the file")]
    gamma: Annotated[
        float,
        Parameter(
            help="exponent of the scaling, 0 to 1: 1 is whitening, 0 is PCA; default: 0.25, or 1 for an encoder not"
            " fine-tuned for similarity, or from the file"
        ),
    ]


class Knobs(Scaling, total=False):
    """The parameters of a whitening that were specified."""

    n_components: Annotated[
        int, Parameter(name=("-k", "--dimension"), help="dimensions to keep; default: all, or from the file")
    ]


def check_sizes(dimension: int, **sizes: Any) -> None:
    """Raises InputError for sizes that vectors of this dimension cannot have, before they are computed."""
    for name, size in sizes.items():
        Bounds(1, dimension, none=True).check(name, size)


def say_gamma(encoder: Encoder) -> None:
    """Notes the default γ for an encoder's vectors, with the reason."""
    from jaxwhiten.terminal import note
    from jaxwhiten.whitening import Moments, choose_gamma

    note(choose_gamma(Moments(provenance=encoder.view.provenance())))


def encode(view: View, texts: Sequence[str], *, cache: bool) -> np.ndarray:
    """The vectors of texts. With `cache`, those before a whitening or code are cached, where a run resumes."""
    from jaxwhiten.encoding.store import EmbeddingStore

    if cache:
        try:
            return view.finished(EmbeddingStore().encode(view.unfitted, texts))
        except OutputError as error:
            advice = "set JAXWHITEN_CACHE_DIR to another folder, or silence this with --no-cache"
            warn(f"Continuing without a cache ({error}): {advice}.")
    return view(texts)
