"""The command `jaxwhiten`: one word a task, each in a module of its own that is imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn, TextIO

from jaxwhiten._version import __version__
from jaxwhiten.errors import JaxwhitenError, unknown_name


@dataclass(frozen=True)
class Command:
    """One word of the command line.

    Attributes:
      module: Module with `add_arguments(parser)` and `run(args)`; it imports nothing heavy before `run`, which returns
        an exit code or None for 0.
      help: What it does, in a line.
    """

    module: str
    help: str


COMMANDS = {
    "encode": Command("jaxwhiten.commands.encode", "turn sentences into vectors, whitened or not"),
    "fit": Command("jaxwhiten.commands.fit", "fit a whitening on sentences or vectors"),
    "apply": Command("jaxwhiten.commands.apply", "whiten a file of vectors"),
    "merge": Command("jaxwhiten.commands.merge", "merge the moments of parts of a corpus"),
    "inspect": Command("jaxwhiten.commands.inspect", "show what a whitening or moments file holds"),
    "tune": Command("jaxwhiten.commands.tune", "choose k, β and γ by a few scored pairs"),
    "index": Command("jaxwhiten.commands.index", "encode texts and build a search index"),
    "search": Command("jaxwhiten.commands.search", "find the texts of an index nearest to a query"),
    "export": Command("jaxwhiten.commands.export", "write an encoder and its whitening for other libraries"),
    "doctor": Command("jaxwhiten.commands.doctor", "check this machine, and models, data and files given"),
}


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line; the arguments of one command are known only if it is named, so that others are not imported.

    Args:
      command: The command whose arguments are wanted.

    Returns:
      The parser.
    """
    top = argparse.ArgumentParser(
        prog="jaxwhiten", description="Sentence vectors from any BERT-family encoder, whitened: better and smaller."
    )
    top.add_argument("--version", action="version", version=f"jaxwhiten {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, entry in COMMANDS.items():
        sub = subparsers.add_parser(name, help=entry.help, description=entry.help[0].upper() + entry.help[1:] + ".")
        if name == command:
            _module(name).add_arguments(sub)
    return top


def _module(command: str) -> ModuleType:
    return importlib.import_module(COMMANDS[command].module)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: The words after `jaxwhiten`; default those of the process.

    Returns:
      The exit code: 0, or that of the error, which is told in one line on stderr.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    try:
        if command is not None and command not in COMMANDS:
            raise unknown_name("command", command, COMMANDS)
        top = parser(command)
        args = top.parse_args(arguments)
        if args.command is None:
            top.print_help()
            return 0
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _module(args.command).run(args)
        sys.stdout.flush()
    except JaxwhitenError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output (head, less) has gone: no more is written, not even when Python ends.
        _close_stdout()
        return 0
    except OSError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # it is stdout that cannot be written to
            _close_stdout()
        return 1
    except MemoryError as error:
        print(f"error: not enough memory ({_one_line(error)}); take smaller blocks or fewer rows", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; files that were there before are intact", file=sys.stderr)
        return 130
    return code or 0


def _close_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What `warnings.showwarning` is while a command runs."""
    print(f"warning: {_one_line(message)}", file=sys.stderr)


def program() -> NoReturn:
    """The console script: `main`, and the end of the process."""
    code = main()
    if code == 130:  # a thread that waits for a silent pipe would keep the process alive
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    program()
