"""The command `jaxwhiten`: one word per task.

The module of a word has `add_arguments(parser)` and `run(args)`, which returns an exit code or None for 0. It is
imported when its word is given, and imports nothing heavy before `run`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from jaxwhiten._version import __version__
from jaxwhiten.errors import JaxwhitenError, unknown_name

COMMANDS = {
    "encode": "turn sentences into vectors, whitened or not",
    "fit": "fit a whitening on sentences or vectors",
    "apply": "whiten a file of vectors",
    "merge": "merge the moments of parts of a corpus",
    "inspect": "show what a whitening or moments file holds",
    "tune": "choose k, β and γ by a few scored pairs",
    "index": "encode texts and build a search index",
    "search": "find the texts of an index nearest to a query",
    "drift": "tell whether an index or a model fits new texts, or should be fitted again",
    "export": "write an encoder and its whitening for other libraries",
    "doctor": "check this machine, and models, data and files given",
}


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line; the arguments of one command are known only if it is named, so that others are not imported."""
    top = argparse.ArgumentParser(
        prog="jaxwhiten", description="Sentence vectors from any BERT-family encoder, whitened: better and smaller."
    )
    top.add_argument("--version", action="version", version=f"jaxwhiten {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, what in COMMANDS.items():
        sub = subparsers.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        if name == command:
            _module(name).add_arguments(sub)
    return top


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"jaxwhiten.commands.{command}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command: 0, or the exit code of the error, which is reported in one line on stderr."""
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
        # The reader (head, less) closed the pipe: no more is written, not even when Python ends.
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


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
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
