"""The command `jaxwhiten`, with one subcommand per task.

The module of a subcommand has `add_arguments(parser)` and `run(args)`, which returns what it found or did, in one
`Report` or several. It is imported when its command is given, and imports nothing heavy before `run`.
"""

from __future__ import annotations

import codecs
import functools
import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NoReturn

from jaxwhiten import interrupts
from jaxwhiten._version import __version__
from jaxwhiten.commands.arguments import Parser, Report, add, check_places, in_flags, one_line
from jaxwhiten.errors import InputError, JaxwhitenError, check_name, warn

COMMANDS = {
    "encode": "turn sentences into vectors, whitened or not",
    "embed": "embed a corpus in resumable shards",
    "fit": "fit a whitening or code, for a model folder that all commands load",
    "apply": "whiten a file of vectors",
    "inspect": "show the contents of a whitening, moments file, index or model",
    "train": "fine-tune an encoder on a table of pairs",
    "score": "score an encoder on your own pairs or searches, raw, whitened and in fewer bytes",
    "index": "encode texts and build a search index; --bytes fits a code for this index alone",
    "search": "search an index for the documents nearest to a query",
    "serve": "answer over HTTP with a model's vectors and searches of its index",
    "distil-static": "distill an encoder into a table of token vectors",
    "export": "export an encoder and its whitening to other libraries",
    "verify": "check this installation, or models and indexes",
}
# For bash, and for zsh, which reads bash's functions after the first line. File names complete what has no words.
_COMPLETION = """_jaxwhiten() {{
  local words='{commands}'
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _jaxwhiten jaxwhiten"""
_SHELLS = {"bash": "", "zsh": "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"}


def completion(shell: str) -> str:
    """A script that completes commands and their options in a shell."""
    options = {name: " ".join(parser(name)[1]._option_string_actions) for name in COMMANDS}
    cases = "\n".join(f"      {name}) words='{words}' ;;" for name, words in options.items())
    return _SHELLS[shell] + _COMPLETION.format(commands=" ".join(COMMANDS), cases=cases)


def parser(command: str | None = None) -> tuple[Parser, Parser]:
    """The command line, and the part of one command, or the whole without one.

    Only the named command has its arguments, so that the other commands are not imported.
    """
    top = Parser(
        prog="jaxwhiten", description="Whitened sentence vectors from any BERT-family encoder: better and smaller."
    )
    own = top
    top.add_argument("--version", action="version", version=f"jaxwhiten {__version__}")
    shells = "print a script that completes commands and options in bash or zsh"
    add(top, "--print-completion SHELL", shells, choices=tuple(_SHELLS))
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, what in COMMANDS.items():
        sub = subparsers.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        if name == command:
            _module(name).add_arguments(sub)
            add(sub, "--json", "print the result as a JSON object; search prints one per query")
            add(sub, "--quiet", "print neither notes nor progress")
            own = sub
    return top, own


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"jaxwhiten.commands.{command.replace('-', '_')}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, or the exit code of an error, which is reported in one line on stderr."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if command == "help":  # `help` and `help COMMAND`
        arguments = [*arguments[1:2], "--help"]
        command = arguments[0] if len(arguments) > 1 else None
    flags: dict[str, str] = {}
    try:
        if command is not None:
            check_name("command", command, COMMANDS)
        top, command_parser = parser(command)
        flags = command_parser.flags()
        args = top.parse_args(arguments)
        if args.command is None:
            print(completion(args.print_completion) if args.print_completion else top.format_help().rstrip())
            return 0
        from jaxwhiten.terminal import naming, quiet

        _cut().clear()
        spell = functools.partial(in_flags, flags=flags)
        with warnings.catch_warnings(), quiet(args.quiet), naming(spell):
            warnings.showwarning = functools.partial(show_warning, flags=flags, shown=set())
            check_places(args)
            show(_module(args.command).run(args), args.json)
            say_cut()
    except JaxwhitenError as error:
        return say(error, flags=flags)
    except UnicodeEncodeError as error:  # bytes of a name or an argument, as Python decodes them
        around = error.object[max(0, error.start - 40) : error.end + 40]
        return say(InputError(f"{around!r} is not valid UTF-8: rename the file, or type it in UTF-8."))
    except BrokenPipeError:
        # The reader (head, less) closed the pipe: nothing more is written, not even when Python ends.
        _close_stdout()
        return 0
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


def show(reports: Report | Iterable[Report] | None, as_json: bool) -> None:
    """Prints on stdout what a command found or did, as text or as JSON, each part at once."""
    from jaxwhiten.io import to_json
    from jaxwhiten.terminal import printed

    for text, facts in [reports] if isinstance(reports, Report) else reports or ():
        if as_json:
            text = "" if facts is None else json.dumps(to_json(facts), ensure_ascii=False)
        if text:
            print(text, flush=True)
            printed()


def _close_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(error: Exception, who: str = "", flags: Mapping[str, str] = MappingProxyType({}), joint: str = " ") -> int:
    """Reports an error in one line on stderr, with `flags` for the parameters; returns the exit code."""
    print(f"error: {who}{one_line(in_flags(error, flags, joint))}", file=sys.stderr)
    return getattr(error, "exit_code", 1)


def _say_of(where: str | bytes, error: OSError) -> int:
    """`say` for an error of the system; a full disk is reported as the library reports it."""
    from jaxwhiten.io import writing

    try:
        with writing(Path(os.fsdecode(where))):
            raise error
    except OSError as reported:
        return say(reported)


def _cut() -> dict[tuple[int, str], int]:
    """How many texts were cut, since this was last cleared."""
    text = sys.modules.get("jaxwhiten.text.tokenization")
    if text:
        return text.COUNTS
    return {}


def say_cut() -> None:
    """Reports on stderr how many texts were longer than their encoder reads, in one line for each length."""
    from jaxwhiten.terminal import note

    counts = _cut()
    for (length, kind), cut in counts.items():
        if kind == "cut" and cut:
            note(f"{cut:,} of {counts[length, 'all']:,} texts were cut at {length} tokens")
    counts.clear()


def show_warning(
    message: Warning | str,
    *_: object,
    flags: Mapping[str, str] = MappingProxyType({}),
    joint: str = " ",
    shown: set[str] | None = None,
) -> None:
    """Prints a warning in one line on stderr, like `say`, unless it was `shown`; replaces `warnings.showwarning`."""
    line = f"warning: {one_line(in_flags(message, flags, joint))}"
    if shown is None or line not in shown:
        print(line, file=sys.stderr)
    if shown is not None:
        shown.add(line)


def program() -> NoReturn:
    """The console script: runs `main` and ends the process."""
    _fill_closed()
    interrupts.handle()
    if sys.stdout is None:
        sys.exit(say(InputError("stdout is closed: redirect it to a file, or to /dev/null.")))
    codecs.register_error("escaped", _escaped)
    sys.stdout.reconfigure(errors="escaped")  # type: ignore[union-attr]
    code: int | str | None
    try:
        code = main()
    except SystemExit as end:  # --help, --version
        code = end.code
    except KeyboardInterrupt:
        interrupts.end()
    if interrupts.asked():
        interrupts.end()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
    except OSError as error:
        code = _say_of("stdout", error)
        _close_stdout()
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
