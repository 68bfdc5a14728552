"""The command `jaxwhiten`, with one subcommand per task.

The module of a subcommand has `add_arguments(parser)` and `run(args)`, which returns an exit code, or None for 0. It is
imported when its command is given, and imports nothing heavy before `run`.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from jaxwhiten import interrupts
from jaxwhiten._version import __version__
from jaxwhiten.commands.arguments import Parser, check_outputs
from jaxwhiten.errors import JaxwhitenError, MissingDependencyError, optional, speaking, unknown_name

COMMANDS = {
    "encode": "turn sentences into vectors, whitened or not",
    "embed": "embed a corpus into parts, and go on where a run was stopped",
    "fit": "fit a whitening on sentences or vectors",
    "apply": "whiten a file of vectors",
    "merge": "merge the moments of parts of a corpus",
    "inspect": "show what a whitening, moments, an index or a model holds",
    "tune": "choose k, β and γ by a few scored pairs",
    "score": "tell how well similarities follow the scores of your own pairs, raw and whitened",
    "index": "encode texts and build a search index",
    "search": "find the texts of an index nearest to a query",
    "upgrade": "search an index by a better encoder, embedding only the texts that are found",
    "drift": "tell whether an index or a model fits new texts, or should be fitted again",
    "distil-static": "make a table of token vectors to stand in for an encoder",
    "export": "write an encoder and its whitening for other libraries",
    "verify": "prove an encoder's vectors by its own files, and beside sentence-transformers",
    "doctor": "check this machine, and models, data and files given",
}


def parser(command: str | None = None) -> tuple[Parser, dict[str, str]]:
    """The command line, and the flags of one command by their names.

    Only the named command has its arguments, so that the other commands are not imported.
    """
    top = Parser(
        prog="jaxwhiten", description="Sentence vectors from any BERT-family encoder, whitened: better and smaller."
    )
    flags: dict[str, str] = {}
    top.add_argument("--version", action="version", version=f"jaxwhiten {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, what in COMMANDS.items():
        sub = subparsers.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        if name == command:
            _module(name).add_arguments(sub)
            flags = sub.flags()
    return top, flags


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"jaxwhiten.commands.{command.replace('-', '_')}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, or the exit code of an error, which is reported in one line on stderr."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    try:
        if command is not None and command not in COMMANDS:
            raise unknown_name("command", command, COMMANDS)
        top, flags = parser(command)
        args = top.parse_args(arguments)
        if args.command is None:
            top.print_help()
            return 0
        with warnings.catch_warnings(), speaking(flags):
            warnings.showwarning = show_warning
            check_outputs(args)
            code = _module(args.command).run(args)
        sys.stdout.flush()
        say_cut()
    except JaxwhitenError as error:
        return say(error)
    except BrokenPipeError:
        # The reader (head, less) closed the pipe: nothing more is written, not even when Python ends.
        _close_stdout()
        return 0
    except OSError as error:
        say(error)
        try:
            sys.stdout.flush()
        except OSError:  # stdout itself cannot be written to
            _close_stdout()
        return 1
    except MemoryError as error:
        print(f"error: not enough memory ({one_line(error)}); take smaller blocks or fewer rows", file=sys.stderr)
        return 1
    return code or 0


def _close_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(error: Exception, who: str = "") -> int:
    """Reports an error in one line on stderr; returns the exit code."""
    print(f"error: {who}{one_line(error)}", file=sys.stderr)
    return getattr(error, "exit_code", 1)


def say_cut() -> None:
    """Reports on stderr how many texts were longer than their encoder reads, in one line for each length."""
    if text := sys.modules.get("jaxwhiten.text.tokenization"):
        for (length, kind), cut in text.COUNTS.items():
            if kind == "cut" and cut:
                n = text.COUNTS[length, "all"]
                print(f"note: {cut:,} of {n:,} texts were cut at {length} tokens", file=sys.stderr)
        text.COUNTS.clear()


def one_line(text: object) -> str:
    """A message without line breaks."""
    return " ".join(str(text).split())


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Prints a warning in one line on stderr; replaces `warnings.showwarning`."""
    print(f"warning: {one_line(message)}", file=sys.stderr)


def need_config(extra: str) -> None:
    """Checks that the packages for a program's config are installed; `python -m` ends in one line if they are not."""
    try:
        optional("ml_collections", extra, f"A program with a config, such as those of {extra}/,", "ml-collections")
    except MissingDependencyError as error:
        if sys.argv[:1] != ["-m"]:
            raise
        sys.exit(say(error))


def program() -> NoReturn:
    """The console script: runs `main` and ends the process."""
    interrupts.handle()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = main()
    except KeyboardInterrupt:
        interrupts.end()
    if interrupts.asked():
        interrupts.end()
    sys.exit(code)


if __name__ == "__main__":
    program()
