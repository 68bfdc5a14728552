"""Arguments that several commands share, and the encoders and whitenings made from them."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from jaxwhiten import engines
from jaxwhiten.errors import Bounds, InputError, OutputError, check_name, unknown_name, warn
from jaxwhiten.locks import LOCK
from jaxwhiten.options import DEFAULTS, SHRINKAGE, WHITENING, Rule, check_options
from jaxwhiten.types import Fields, Json

if TYPE_CHECKING:
    import numpy as np

    from jaxwhiten.codes import Code
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.views import View
    from jaxwhiten.whitening import Whitening

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
POOLINGS = (
    "mean, cls, max, first_last_avg, embeddings_last_avg, last2avg, pooler, weightedmean, mean_sqrt_len_tokens,"
    " lasttoken, layers:I+J"
)

# Control characters, line ends, direction changes and surrogates, which a terminal would act on.
_ACTIVE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# In addresses (//user:password@host) and in settings (password=...).
_PASSWORD = re.compile(
    r"""://[^\s'"]*@|(?i:(\w*(?:password|passwd|pwd|token|secret|api_?key)\s*=\s*)(?!\*)('[^']*'|[^\s&;,'"]+))"""
)

STDOUT = "-"
_OF_WHITENING = Rule(tuple(DEFAULTS), "-k, --beta and --gamma require --whitening FILE.", without=("whitening",))
VECTORS = (".npy", ".parquet", ".jsonl")  # endings of files of vectors
CODE = ".code.safetensors"  # ending of the code beside a file of codes
_NO_OPTION = "\0"  # before the words after `--`; no argument of a process has it


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
    value = r"""'(?P<quoted>[^']*)'|(?P<bare>[^\s,;:()'"]*[^\s,;:()'".])"""
    pattern = rf"(?<![\w./-])(?P<name>{names})=(?:{value})|`(?P<alone>{names})`"

    def spelled(match: re.Match[str]) -> str:
        if match["alone"]:
            return flags[match["alone"]]
        return f"{flags[match['name']]}{joint}{match['bare'] or match['quoted'] or ''}"

    return re.sub(pattern, spelled, str(message))


class Report(NamedTuple):
    """What a command found or did: the text, and the facts for --json. Several texts may share the facts of one."""

    text: str
    facts: Fields | None = None


def _restored(value: object) -> Any:
    """The value of an argument without `_NO_OPTION`."""
    if isinstance(value, list):
        return list(map(_restored, value))
    if isinstance(value, str) and value.startswith(_NO_OPTION):
        return type(value)(value.removeprefix(_NO_OPTION))
    return value


class Source(str):
    """What a command reads: a file, a folder, a pattern of them, or the name of a model."""


class Place(str):
    """A file or folder that a command writes. `check_places` finds it, and what would be lost by it, by their types."""


class Guarded(Place):
    """A place that the command itself guards by `check_new`, once it knows whether it would be replaced."""


@dataclasses.dataclass(frozen=True)
class Output:
    """The type of an argument that names a place: checks it as the argument is parsed, before any work.

    `kind` is one of `io.check_file`, or of folders that `io.whole_folder` writes, whose names do not end like those of
    files. `endings` are those that a file may have; `-` is then JSON lines on stdout. `what` is said of a folder whose
    name ends like that of a file.
    """

    kind: str = ""
    folder: bool = False
    endings: Collection[str] = ()
    what: str = "the output is a folder"

    def __call__(self, path: str) -> Place:
        from jaxwhiten import io

        if self.folder:
            ending = re.fullmatch(r"\.[A-Za-z]\w*", Path(path).suffix)  # but not that of a model's name, such as v1.5
            if ending and not path.endswith("/") and not Path(path).is_dir():
                advice = "a folder name with a dot must end with /."
                raise InputError(f"{path}: {self.what}, not a {ending[0]} file; {advice}")
            io.check_folder(path, self.kind)
        elif path != STDOUT or ".jsonl" not in self.endings:
            if self.endings:
                check_name(f"ending of the output {path}:", Path(path).suffix.lower(), self.endings)
            io.check_file(path, self.kind)
        return Place(path)


def check_new(place: str, overwrite: bool) -> None:
    """Raises InputError for a place that has contents, unless they may be replaced."""
    if os.path.isdir(place):
        full = bool(set(os.listdir(place)) - {LOCK})
    else:
        full = os.path.isfile(place) and os.path.getsize(place) > 0
    if full and not overwrite:
        raise InputError(f"{place}: exists already. Specify a different output, or replace it with --overwrite.")


def check_places(args: argparse.Namespace) -> None:
    """Raises InputError for a place that would replace a source of the same run, another place, or earlier contents."""
    named = list(_paths(args, Source))
    for name, place in _paths(args, Place):
        real = os.path.realpath(place)
        for other, value in named:
            read = os.path.realpath(value)
            inside = os.path.exists(read) and os.path.commonpath([real, read])
            if real == read or (inside and (inside == real or (inside == read and os.path.exists(real)))):
                if other not in ("input", "inputs"):
                    what = f"{other}={str(value)!r}"
                else:
                    what = f"the input {value}"
                raise InputError(f"{place}: would replace {what}. Specify a different `{name}`.")
        if not isinstance(place, Guarded):
            check_new(place, args.overwrite)
            check_new(f"{place}{CODE}", args.overwrite)
        named.append((name, place))


def _paths(args: argparse.Namespace, kind: type[str]) -> Iterator[tuple[str, str]]:
    """The values of a type, with the names of their arguments."""
    for name, value in vars(args).items():
        for path in value if isinstance(value, list | tuple) else [value]:
            if isinstance(path, kind) and path != STDOUT:
                yield name, path


class Parser(argparse.ArgumentParser):
    """Reports mistakes as errors of one line; a mistyped option is answered with the nearest names.

    The options of a command may stand anywhere among its other arguments. Words after `--` are no options.
    """

    _second = False

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        writes = isinstance(action.type, Output) or action.type is Guarded
        if writes and "--overwrite" not in self._option_string_actions:
            add(self, "--overwrite", "replace an output that exists already")
        return action

    def error(self, message: str) -> NoReturn:
        message = message.replace(_NO_OPTION, "")
        raise InputError(f"{message[:1].upper()}{message[1:]}: see {self.prog} --help.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reports unknown options first, before options that are missing because of them."""
        args = list(args or ())
        if "--" in args:  # argparse loses it between the two times that it reads the arguments of a command
            at = args.index("--")
            args[at:] = [_NO_OPTION + word for word in args[at + 1 :]]
        for word in itertools.takewhile(lambda word: word.startswith("-") or not self._subparsers, args):
            name = word.partition("=")[0]
            if word.startswith("--") and not any(option.startswith(name) for option in self._option_string_actions):
                raise unknown_name("option", name, [o for o in self._option_string_actions if o.startswith("--")])
        if self._subparsers or self._second:
            return super().parse_known_args(args, namespace)
        self._second = True  # calls this method again
        parsed, rest = self.parse_known_intermixed_args(args, namespace)
        for name, value in vars(parsed).items():
            setattr(parsed, name, _restored(value))
        return parsed, rest

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Converts a text by the `type` of its argument; the errors of an `Output` and of `Bounds` stay as they are."""
        if isinstance(action.type, Bounds):
            try:
                value = action.type(arg_string)
            except ValueError:
                message = f"{arg_string!r} is not valid: expected {action.type.words}"
                raise argparse.ArgumentError(action, message) from None
            action.type.check(action.dest, value)
            return value
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if isinstance(error.__context__, InputError):
                raise error.__context__ from None
            raise

    def flags(self) -> dict[str, str]:
        """The first flag of every option, and the names of the other arguments, by their names in Python.

        An option of one letter, such as -k, has this name, too.
        """
        letters = {word[1:]: word for word in self._option_string_actions if len(word) == 2}
        return letters | {action.dest: (action.option_strings or [action.dest])[0] for action in self._actions}


def add(parser: argparse._ActionsContainer, names: str, help: str, **settings: Any) -> None:
    """Adds an argument. `names` has its flags and a word for its value, such as `"-o --output DIR"`, or no word."""
    words = names.split()
    flags = [word for word in words if word.startswith("-")]
    if flags == words:
        settings["action"] = "store_true"
    elif flags:
        settings["metavar"] = words[-1]
    parser.add_argument(*(flags or words), help=help, **settings)


def add_model(parser: argparse.ArgumentParser, *, default: str | None = DEFAULT_MODEL) -> None:
    """Adds --model and the options of encoding; without a default if a file records how its vectors were made."""
    defaults = (default, "auto (from the model folder)", "from the model folder", engines.FASTEST, "float32")
    if default:
        model, pooling, length, engine, dtype = defaults
    else:
        model, pooling, length, engine, dtype = ["as recorded in the file"] * 5
    add(parser, "--model MODEL", f"Hugging Face model ID or folder; default: {model}", type=Source, default=default)
    add(parser, "--pooling POOLING", f"{POOLINGS}; default: {pooling}", default=default and "auto")
    add(parser, "--max-length TOKENS", f"tokens per text; default: {length}", type=tokens)
    add(parser, "--engine ENGINE", f"{engines.HELP}; default: {engine}", default=default and engines.FASTEST)
    add(parser, "--dtype DTYPE", f"float32 or bfloat16; default: {dtype}")


def tokens(text: str) -> int:
    if (length := int(text)) < 3:
        raise argparse.ArgumentTypeError(f"expected at least 3 tokens, got {length}")
    return length


def listed(text: str) -> list[str]:
    """Names separated by commas; one that holds a comma is quoted, as in CSV."""
    return next(csv.reader([text]), [])


# Defaults of a fit that are not those of `Whitening`.
_FITTED = {"gamma": "0.25, or 1 for an encoder not fine-tuned for similarity", "shrinkage": SHRINKAGE}


def add_knobs(parser: argparse.ArgumentParser, *, fitting: bool = False, dimension: bool = True) -> None:
    """Adds the parameters of a saved whitening, or of one to be fitted; -k only with `dimension`."""
    what = "dimensions to keep; default: " + ("all" if fitting else "from the file")
    if dimension:
        add(parser, "-k --dimension K", what, dest="n_components", type=int)
    for knob in WHITENING:
        if knob.name != "n_components":
            if fitting:
                default = _FITTED.get(knob.name) or f"{knob.default:g}"
            else:
                default = "from the file"
            flag = f"--{knob.name.replace('_', '-')}"
            add(parser, f"{flag} {knob.name.upper()}", f"{knob.help}; default: {default}", type=knob.bounds)


def knobs(args: argparse.Namespace) -> Json:
    """The parameters of a whitening that were given on the command line."""
    values = {knob.name: getattr(args, knob.name, None) for knob in WHITENING}
    return {name: value for name, value in values.items() if value is not None}


def check_sizes(args: argparse.Namespace, dimension: int) -> None:
    """Raises InputError for a -k or --bytes that vectors of this dimension cannot have, before they are computed."""
    for name in ("n_components", "bytes"):
        Bounds(1, dimension, none=True).check(name, getattr(args, name, None))


def values_of(option: str, words: list[str], read: Callable[[str], Any], expected: str) -> Json:
    """The NAME=VALUE words of an option that may be repeated."""
    values = {}
    for word in words:
        name, _, value = word.rpartition("=")
        try:
            values[name] = read(value)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"{option} {word}: expected {expected}.")
    return values


def add_tuned(parser: argparse.ArgumentParser) -> None:
    """Adds --tuned and --untuned, which decide γ."""
    parser.add_argument(
        "--tuned",
        help="the encoder is fine-tuned for similarity; default: judged by its vectors of shipped sentences",
        action="store_const",
        const=True,
    )
    parser.add_argument(
        "--untuned",
        help="the encoder is not fine-tuned for similarity",
        dest="tuned",
        action="store_const",
        const=False,
    )


def say_gamma(encoder: Encoder) -> None:
    """Notes the default γ for an encoder's vectors, with the reason."""
    from jaxwhiten.terminal import note
    from jaxwhiten.whitening import Moments, choose_gamma

    note(choose_gamma(Moments(provenance=encoder.view.provenance())))


def load_encoder(args: argparse.Namespace, told: Fields | None = None) -> Encoder:
    """The encoder that `add_model`'s arguments name; `told` supplies values that the arguments omit."""
    from jaxwhiten.encoding.encoder import encoder_of
    from jaxwhiten.space import Space

    given = {name: getattr(args, name) for name in ("model", "pooling", "max_length", "dtype")}
    space = Space.of({**(told or {}), **{name: value for name, value in given.items() if value is not None}})
    tuned = getattr(args, "tuned", None)
    if tuned is None:
        tuned = (told or {}).get("tuned")
    return encoder_of(space, bare=args.pooling is None, engine=args.engine, tuned=tuned)


def encode(
    args: argparse.Namespace, encoder: Encoder, texts: list[str], role: str | None = None, code: Code | None = None
) -> np.ndarray:
    """`encode_view` for an encoder; `role` selects the prompt of the texts."""
    return encode_view(args, encoder.view.in_role(role), texts, code)


def encode_view(
    args: argparse.Namespace, view: View, texts: Sequence[str], code: Whitening | Code | None = None
) -> np.ndarray:
    """The vectors of texts. Unless --no-cache is given, those before a whitening are cached, where a run resumes.

    `code` is what was fitted on these vectors, which may be of the cache.
    """
    from jaxwhiten.encoding import EmbeddingStore

    fitted = view.head.whitening or code
    if not args.no_cache:
        raw = cached = view.unfitted
        provenance = {} if fitted is None else fitted.provenance
        pooling = provenance.get("pooling")
        if pooling not in (None, raw.head.name):  # cached under the name at the time of the fit
            with contextlib.suppress(InputError):  # a pooling that cannot be named here
                named = raw.with_pooling(pooling)
                if (named.fingerprint, named.head.form) == (provenance.get("fingerprint"), raw.head.form):
                    cached = named
        try:
            return view.finished(EmbeddingStore().encode(cached, texts), raw)
        except OutputError as error:
            advice = "set JAXWHITEN_CACHE_DIR to another folder, or silence this with --no-cache"
            warn(f"Continuing without a cache ({error}): {advice}.")
    return view(texts)


def load_whitening(path: str, args: argparse.Namespace, encoder: Encoder | None = None) -> Whitening | Code:
    """A saved whitening with the k, β and γ of the command line, or a saved code.

    It must fit the encoder, if one is given.
    """
    from jaxwhiten.codes import Code, load_fitted
    from jaxwhiten.whitening import Whitening

    fitted: Whitening | Code = load_fitted(path, (Whitening, Code))
    if encoder is not None:
        encoder.view.check_fitted(fitted, path, "document")
    changes = knobs(args)
    if isinstance(fitted, Whitening):
        if changes:
            return fitted.with_params(**changes)
        return fitted
    if changes:
        omit = ", ".join(f"`{name}`" for name in changes)
        raise InputError(f"{path}: contains a code, whose settings are fixed: omit {omit}, or refit it.")
    return fitted


def load_plain_whitening(path: str, args: argparse.Namespace) -> Whitening:
    """`load_whitening` where a code cannot be used."""
    from jaxwhiten.whitening import Whitening

    if not isinstance(whitening := load_whitening(path, args), Whitening):
        raise InputError(f"{path}: contains a {whitening.name!r} code; expected a whitening.")
    return whitening


def whitened_encoder(args: argparse.Namespace, *, normalize: bool = True) -> Encoder:
    """The encoder that the arguments name, followed by the whitening or code that they name, if any."""
    if args.whitening is None:
        check_options([_OF_WHITENING], vars(args))
        return load_encoder(args)
    from jaxwhiten.whitening import Whitening

    fitted = load_whitening(args.whitening, args)
    encoder = load_encoder(args)
    if isinstance(fitted, Whitening):
        return encoder.with_whitening(fitted, normalize=normalize, where=args.whitening)
    encoder.view.uncoded.check_fitted(fitted, args.whitening)
    return encoder.with_code(fitted)
