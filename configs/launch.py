"""How every program starts: `--help`, `--config FILE`, `--config.key=value` overrides, one-line errors, exit codes.

A program is `run(main, "configs/sts.py", STS)`, or `run(main, Latency)` without a config file; `main` gets the finished
settings. `--key=value` is short for `--config.key=value`. Exit code 0 is success, 2 an error
that the user can correct (a typo, a missing file, bad data), 1 any other error, 130 an interrupt.

`--distributed` makes the process one of several of one job (docs/guides/corpora.md). Without a value, the
environment of Slurm, a TPU pod, Open MPI or Kubernetes decides. Elsewhere `--distributed=ADDRESS:PORT,INDEX,COUNT`
gives the address of process 0, the number of this process, and the number of processes. Process 0 writes and prints;
the others only report errors. If one fails, all end.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import os
import re
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from configs.settings import Config, keys
from jaxwhiten.commands.cli import in_flags, say, say_cut, show_warning
from jaxwhiten.errors import InputError, JaxwhitenError, unknown_name
from jaxwhiten.terminal import interrupts, naming

_DISTRIBUTED = "one process of several: alone, or ADDRESS:PORT,INDEX,COUNT (docs/guides/corpora.md)"
# Library parameters whose config keys have other names.
_OTHER_NAMES = {"data_dir": "data.folder", "n_components": "ks", "pooling": "poolings"}
_STATUS = re.compile(r"(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")


def run(main: Callable[[Any], None], default: str | type[Config], *kinds: type[Config]) -> None:
    """Parses the command line, calls `main(config)` and ends the process.

    Without `--config` the settings are those of the default, a config file or a class. `kinds` are the classes that the
    program takes, with a default that is a class only this one.
    """
    try:
        command = _read(sys.argv[1:])
        config = _settings(command.config or default, kinds or (default,))
        if command.help:
            print(_help(command.config or default, config), end="")
            return
        config.read(command.changes)
    except JaxwhitenError as error:
        sys.exit(say(error))
    warnings.showwarning = functools.partial(show_warning, shown=set())
    with naming(functools.partial(in_flags, flags=_flags(config), joint="=")):
        if command.distributed is None:
            _guarded(main, config)
        else:
            _as_one_of_many(main, config, command.distributed)


def _settings(source: str | type[Config], kinds: tuple[Any, ...]) -> Config:
    """The settings of a class, or of a config file that makes one of some classes."""
    if not isinstance(source, str):
        return source()
    module, argument = _load(source)
    config: Config = module.get_config(argument) if argument else module.get_config()
    if not isinstance(config, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(f"{source}: expected settings of {expected}, got {type(config).__name__}.")
    return config


def run_without_config(main: Callable[[], None]) -> None:
    """Runs a program that reads `sys.argv` itself; `--help` prints the docstring of its file."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((sys.modules["__main__"].__doc__ or "").strip())
        return
    try:
        main()
    except JaxwhitenError as error:
        sys.exit(say(error))


def _guarded(main: Callable[[Any], None], config: Config) -> None:
    try:
        main(config)
        say_cut()
    except JaxwhitenError as error:
        sys.exit(say(error))
    except KeyboardInterrupt:
        interrupts.end()


def _as_one_of_many(main: Callable[[Any], None], config: Config, address: str) -> None:
    """Joins the other processes and runs; an error ends the process at once, so that the others do not wait for it."""
    from configs import processes
    from jaxwhiten.runtime import distributed

    try:
        processes.start(address)
    except JaxwhitenError as error:
        sys.exit(say(error))
    name = _process()
    try:
        with _silenced_stdout(for_good=not distributed.is_writer()):  # gloo prints when the first exchange connects it
            distributed.check_same("the configuration", repr(config))
        main(config)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0, interrupts.STOPPED):  # all processes end alike
            raise
        if is_broken_exchange(error):
            print(f"error: {name}: lost another process ({error}); the runtime says which", file=sys.stderr, flush=True)
            _await_verdict()
            code = 1
        elif isinstance(error, KeyboardInterrupt):
            print(interrupts.MESSAGE, file=sys.stderr)
            code = interrupts.EXIT_CODE
        elif isinstance(error, JaxwhitenError):
            code = say(error, f"{name}: ")
        else:
            traceback.print_exc()
            code = 1
        _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends a process that has failed, without waiting for the others.

    The runtime ends the others within `processes.HEARTBEAT_SECONDS` and names the process that died.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(1)  # processes that fail for the same reason can still report it
    os._exit(code)


def is_broken_exchange(error: BaseException) -> bool:
    """Whether an error, or a cause of it, is the runtime's report that another process could not be reached."""
    cause: BaseException | None = error
    while cause is not None:
        if _STATUS.match(str(cause)) and not isinstance(cause, JaxwhitenError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _await_verdict() -> None:
    """Waits until the runtime finds out which process died; the runtime then names it and ends this process."""
    from configs import processes

    time.sleep(processes.HEARTBEAT_SECONDS + 10)


def _process() -> str:
    """The name of this process in messages."""
    import jax

    return f"process {jax.process_index()} of {jax.process_count()} on {socket.gethostname()}"


@contextlib.contextmanager
def _silenced_stdout(for_good: bool) -> Iterator[None]:
    """Suppresses all output to stdout within the block, also from C++; with `for_good` also after it."""
    sys.stdout.flush()
    stdout = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        if not for_good:
            os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nothing)


class _Command(NamedTuple):
    """What a command line says."""

    config: str | None
    distributed: str | None
    help: bool
    changes: dict[str, str]  # keys and their values, as text


def _read(words: list[str]) -> _Command:
    """Reads `--config FILE`, `--config.KEY=VALUE` or `--KEY VALUE`, `--distributed[=WHERE]` and `--help`."""
    config = None
    distributed = None
    help = False
    changes: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--distributed":
            distributed = value
        elif word in ("-h", "--help"):
            help = True
        elif name.startswith("--"):
            if not equals and (value := next(rest, "--")).startswith("--"):
                raise InputError(f"{name}: expected a value: use {name}=VALUE; --help lists the keys.")
            if name == "--config":
                config = value
            else:
                changes[name.removeprefix("--").removeprefix("config.").replace("-", "_")] = value
        elif distributed == "":
            raise InputError(f"Give the value of --distributed after an equals sign: --distributed={word}.")
        else:
            raise InputError(f"Expected --config.KEY=VALUE, got {word!r}.")
    return _Command(config, distributed, help, changes)


def _load(path: str) -> tuple[ModuleType, str]:
    """The config file as a module, and the argument of its `get_config`, from `FILE:ARGUMENT`."""
    file, _, argument = path.partition(":")
    if not Path(file).is_file():
        raise unknown_name("config file", path, map(str, Path("configs").glob("*.py")))
    spec = importlib.util.spec_from_file_location("jaxwhiten_config", file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks for its own
    spec.loader.exec_module(module)
    return module, argument


def _help(source: str | type[Config], config: Config) -> str:
    """Usage, and every config key with its default; a parameter of a whitening or a training with its help text."""
    program = sys.modules["__main__"]
    name = getattr(program.__spec__, "name", None)
    usage = sys.argv[0]
    if name:
        usage = f"python -m {name}"
    parser = argparse.ArgumentParser(
        prog=usage,
        usage=f"{usage} [--config FILE] [--config.KEY=VALUE ...] [--distributed[=ADDRESS:PORT,INDEX,COUNT]]",
        description=(program.__doc__ or "").partition("\n")[0],
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32),
    )
    file = f"; here: {source}" if isinstance(source, str) else ""
    parser.add_argument("--config", metavar="FILE", help=f"Python file with the keys, which is executed{file}")
    parser.add_argument("--distributed", metavar="WHERE", help=_DISTRIBUTED)
    group = parser.add_argument_group("keys, their defaults and what they are")
    for key, entry in keys(config).items():
        if not entry.is_section:
            text = "; ".join(filter(None, (f"default {entry.value!r}", entry.help)))
            group.add_argument(f"--config.{key}", metavar="VALUE", help=text.replace("%", "%%"))
    return parser.format_help()


def _flags(config: Config) -> dict[str, str]:
    """The flag of every key, also under the library's name for it."""
    flags = {key: f"--config.{key}" for key in keys(config)}
    return {name: flags[key] for name, key in _OTHER_NAMES.items() if key in flags} | flags
