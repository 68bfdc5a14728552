"""The command `jaxwhiten`. A subcommand is a function, whose signature and docstring are its flags and its help.

The function returns what it found or did, in one `Report` or several. Its module is imported when its command is
given, and imports nothing heavy before the function is called.
"""

from __future__ import annotations

import argparse
import codecs
import functools
import inspect
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NoReturn, get_args

from cyclopts import App, CoercionError, CycloptsError, MissingArgumentError, Parameter, UnknownOptionError

from jaxwhiten import terminal
from jaxwhiten._version import __version__
from jaxwhiten.commands.arguments import Report, SourceName, check_places, in_flags, one_line
from jaxwhiten.errors import InputError, JaxwhitenError, check_name, unknown_name, warn
from jaxwhiten.terminal import interrupts

# Commands, each with its module.
COMMANDS = {
    "encode": "encode",
    "embed": "embed",
    "fit": "fit",
    "apply": "encode",
    "inspect": "inspect",
    "train": "train",
    "score": "score",
    "index": "index",
    "add": "index",
    "remove": "index",
    "search": "search",
    "serve": "serve",
    "distill": "train",
    "export": "export",
    "verify": "verify",
}
_OF_PROGRAM = ("--version", "--print-completion")  # options that no command has
_DASH = "\0"  # for `-`, which is no option; no argument of a process has it
_FLAGS: dict[str, str] = {}  # of the command at hand, by the names of its parameters in Python


def _read(app: App, commands: tuple[str, ...], arguments: Any) -> None:
    """Fills `_FLAGS`; refuses fractions for integers, which cyclopts would round; puts `-` where it was."""
    _FLAGS.clear()
    for argument in arguments:
        letters = {name[1:]: name for name in argument.names if len(name) == 2}
        _FLAGS.update(letters | {name: argument.name for name in argument.field_info.names if argument.names})
        for position, token in enumerate(argument.tokens):
            if token.value == _DASH:
                argument.tokens[position] = token.evolve(value="-")
            if int in (argument.hint, *get_args(argument.hint)) and "." in token.value:
                raise CoercionError(argument=argument, token=token, target_type=int)


_POSITIVE = Parameter(negative=())  # no --no-... beside flags
APP = App(
    name="jaxwhiten",
    version=__version__,
    help_flags=(),
    version_flags=(),
    default_parameter=_POSITIVE,
    group_arguments="arguments",
    group_parameters="options",
    config=_read,
)
for _name, _module in COMMANDS.items():
    APP.command(f"jaxwhiten.commands.{_module}:{_name}", name=_name)


@APP.meta.default
def launch(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    quiet: bool = False,
    wants_help: Annotated[bool, Parameter(name=("-h", "--help"))] = False,
    version: bool = False,
    print_completion: Literal["bash", "zsh"] | None = None,
) -> None:
    """Whitened sentence vectors from any BERT-family encoder: better and smaller.

    Args:
      as_json: print the result as a JSON object; search prints one per query
      quiet: print neither notes nor progress
      wants_help: show this help
      version: show the version
      print_completion: print a script that completes commands and options in a shell, bash or zsh
    """
    if version:
        print(f"jaxwhiten {__version__}")
        return
    if print_completion:
        print(APP.generate_completion(shell=print_completion))
        if print_completion == "zsh":  # which reads it from a file by itself, but not from `source`
            print("compdef _cyclopts_jaxwhiten jaxwhiten")
        return
    if words[:1] == ("help",):
        words, wants_help = words[1:], True
    if words:
        if words[0].startswith("-"):
            raise _unknown_option(words[0])
        check_name("command", words[0], COMMANDS)
    if wants_help or not words:
        print(help_of(*words[:1]))
        return
    dashed = [_DASH if word == "-" else word for word in words]
    command, bound, _ = APP.parse_args(dashed, print_error=False, exit_on_error=False)
    terminal.COUNTS.clear()
    with warnings.catch_warnings(), terminal.quiet(quiet):
        warnings.showwarning = functools.partial(show_warning, shown=set())
        check_places(bound.arguments)
        show(command(*bound.args, **bound.kwargs), as_json)
        say_cut()


def _arguments(command: str = "") -> list[Any]:
    """The arguments of a command, and of all commands, or those of the program, with their help."""
    return [
        argument
        for app in ([APP[command]] if command else []) + [APP.meta]
        for argument in app.assemble_argument_collection(default_parameter=_POSITIVE, parse_docstring=True)
        if argument.show and argument.parameter.help and not (command and argument.name in _OF_PROGRAM)
    ]


def help_of(command: str = "") -> str:
    """The help of a command, or of the program: its docstring and its parameters."""
    text, _, end = _doc(command).partition("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        prog=f"jaxwhiten {command or 'COMMAND'}",
        description=text.partition("\n\nArgs:\n")[0],
        epilog=f"examples:\n{end}" if command else _listed(),
        add_help=False,
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
    )
    words = [parser.prog]
    sections = dict[str, Any]()
    for argument in _arguments(command):
        default = argument.field_info.default
        shown = f"; default: {default}" if default and type(default) in (int, float, str, SourceName) else ""
        settings: dict[str, Any] = {"help": f"{argument.parameter.help}{shown}".replace("%", "%%")}
        names = argument.names
        if not argument.name.startswith("-"):
            words.append(argument.name)
            names = names[:1]
        elif bool in (argument.hint, *get_args(argument.hint)):
            settings["action"] = "store_true"
        else:
            settings["metavar"] = max(argument.names, key=len).strip("-").upper()
        title = argument.parameter.group[0].name
        section = sections.setdefault(title, parser.add_argument_group(title))
        section.add_argument(*names, **settings)
    parser.usage = " ".join([*words, "[options]"])
    return parser.format_help().rstrip()


def _doc(command: str) -> str:
    function: Any = APP[command].default_command if command else launch
    return inspect.getdoc(function) or ""


def _listed() -> str:
    lines = [f"  {name:<12}{_doc(name).partition(chr(10))[0]}" for name in COMMANDS]
    return "\n".join(["commands:", *lines])


@terminal.naming(functools.partial(in_flags, flags=_FLAGS))
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, or the exit code of an error, which is reported in one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _FLAGS.clear()
    try:
        command, bound, _ = APP.meta.parse_args(words, print_error=False, exit_on_error=False)
        command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
    except CycloptsError as error:
        return say(_of_usage(error, next((word for word in words if word in COMMANDS), "")))
    except JaxwhitenError as error:
        return say(error)
    except UnicodeEncodeError as error:  # bytes of a name or an argument, as Python decodes them
        around = error.object[max(0, error.start - 40) : error.end + 40]
        return say(InputError(f"{around!r} is not valid UTF-8: rename the file, or type it in UTF-8."))
    except BrokenPipeError:
        # The reader (head, less) closed the pipe: nothing more is written, not even when Python ends.
        _close_stdout()
    except OSError as error:
        where = error.filename or "the output"
        try:
            sys.stdout.flush()
        except OSError:
            where = "stdout"
            _close_stdout()
        return _say_of(where, error)
    except MemoryError as error:
        print(f"error: not enough memory ({one_line(error)}); take smaller blocks or fewer rows", file=sys.stderr)
        return 1
    return 0


def _of_usage(error: CycloptsError, command: str) -> InputError:
    """A mistake in a command line, with the nearest option or with where to look."""
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error.token.keyword or error.token.value, command)
    reason = str(error).rstrip(".")
    if isinstance(error, MissingArgumentError) and error.argument and not (error.keyword or error.tokens_so_far):
        reason = f"{' or '.join(error.argument.names)} is missing"
    return InputError(f"{reason}: see jaxwhiten {command} --help.")


def _unknown_option(word: str, command: str = "") -> InputError:
    names = [name for argument in _arguments(command) for name in argument.names if name.startswith("--")]
    return unknown_name("option", word.partition("=")[0], names)


def show(reports: Report | Iterable[Report] | None, as_json: bool) -> None:
    """Prints on stdout what a command found or did, as text or as JSON, each part at once."""
    from jaxwhiten.io import to_json

    for text, facts in [reports] if isinstance(reports, Report) else reports or ():
        if as_json:
            text = "" if facts is None else json.dumps(to_json(facts), ensure_ascii=False)
        if text:
            print(text, flush=True)
            terminal.printed()


def _close_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(error: Exception) -> int:
    """Reports an error in one line on stderr, with the reader's names of parameters; returns the exit code."""
    print(f"error: {one_line(terminal.named(str(error)))}", file=sys.stderr)
    return getattr(error, "exit_code", 1)


def _say_of(where: str | bytes, error: OSError) -> int:
    """`say` for an error of the system; a full disk is reported as the library reports it."""
    from jaxwhiten.io import writing

    try:
        with writing(os.fsdecode(where)):
            raise error
    except OSError as reported:
        return say(reported)


def say_cut() -> None:
    """Reports on stderr how many texts were longer than their encoder reads, in one line for each length."""
    for (length, kind), cut in terminal.COUNTS.items():
        if kind == "cut" and cut:
            terminal.note(f"{cut:,} of {terminal.COUNTS[length, 'all']:,} texts were cut at {length} tokens")


def show_warning(message: Warning | str, *_: object, shown: set[str]) -> None:
    """Prints a warning in one line on stderr, like `say`, unless it was `shown`; replaces `warnings.showwarning`."""
    line = f"warning: {one_line(terminal.named(str(message)))}"
    if line not in shown:
        print(line, file=sys.stderr)
    shown.add(line)


def program() -> NoReturn:
    """The console script: runs `main` and ends the process."""
    _fill_closed()
    interrupts.handle()
    if sys.stdout is None:
        sys.exit(say(InputError("stdout is closed: redirect it to a file, or to /dev/null.")))
    codecs.register_error("escaped", _escaped)
    sys.stdout.reconfigure(errors="escaped")  # type: ignore[union-attr]
    try:
        code = main()
    except KeyboardInterrupt:
        interrupts.end()
    if interrupts.asked():
        interrupts.end()
    sys.exit(code)


def _fill_closed() -> None:
    """Opens /dev/null for closed standard streams: the first file that is opened would take the place of one."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that stdout cannot show, escaped as in JSON."""
    assert isinstance(error, UnicodeEncodeError)
    warn(f"stdout is {error.encoding}, its other characters are escaped: set PYTHONIOENCODING=utf-8.")
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


if __name__ == "__main__":
    program()
