"""How every program starts: `--help`, `--config FILE`, `--config.key=value` overrides, one-line errors, exit codes.

A program is `run(main, "configs/sts.py")`; `main` gets the finished `ConfigDict`. Exit code 0 is success, 2 an error
that the user can correct (a typo, a missing file, bad data), 1 any other error, 130 an interrupt.

`--distributed` makes the process one of several of one job (docs/explanations/devices.md). Without a value, the
environment of Slurm, a TPU pod, Open MPI or Kubernetes decides. Elsewhere `--distributed=ADDRESS:PORT,INDEX,COUNT`
gives the address of process 0, the number of this process, and the number of processes. Process 0 writes and prints;
the others only report errors. If one fails, all end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
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
from typing import Any, NoReturn

from configs import need_config
from jaxwhiten import interrupts
from jaxwhiten.commands.cli import Parser, say, say_cut, show_warning
from jaxwhiten.errors import InputError, JaxwhitenError, unknown_name
from jaxwhiten.parameters import WHITENING, TrainingOptions

need_config("eval")
from absl import app, flags, logging  # noqa: E402
from ml_collections import ConfigDict, config_flags  # noqa: E402

_DISTRIBUTED = "one process of several: alone, or ADDRESS:PORT,INDEX,COUNT (docs/explanations/devices.md)"
# Library parameters whose config keys have other names.
_OTHER_NAMES = {"data_dir": "data.folder", "n_components": "ks", "pooling": "poolings"}
_STATUS = re.compile(r"(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")


def run(main: Callable[[ConfigDict], None], default_config: str) -> None:
    """Parses the command line, calls `main(config)` and ends the process; without `--config` the default is loaded."""
    try:
        path, where, rest = _split(sys.argv[1:], default_config)
        module, argument = _load(path)
        config: ConfigDict = module.get_config(argument) if argument else module.get_config()
        if {"-h", "--help", "-help"} & set(rest):
            print(_help(path, config), end="")
            sys.exit()
        _check(rest, config)
    except JaxwhitenError as error:
        sys.exit(say(error))
    sys.argv[1:] = rest
    holder = config_flags.DEFINE_config_dict("config", config, help_string="A file in configs/.")
    flags.DEFINE_string("distributed", None, _DISTRIBUTED)
    warnings.showwarning = functools.partial(show_warning, flags=_flags(config), joint="=")

    def program(_: list[str]) -> None:
        _guarded(main, holder.value) if where is None else _as_one_of_many(main, holder.value, where)

    app.run(program, flags_parser=_parse)


def run_without_config(main: Callable[[], None]) -> None:
    """Runs a program that reads `sys.argv` itself; `--help` prints the docstring of its file."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((sys.modules["__main__"].__doc__ or "").strip())
        return
    try:
        main()
    except JaxwhitenError as error:
        sys.exit(say(error))


def _guarded(main: Callable[[ConfigDict], None], config: ConfigDict) -> None:
    logging.set_verbosity(logging.WARNING)  # libraries' INFO lines would bury the program's own
    try:
        main(config)
        say_cut()
    except JaxwhitenError as error:
        sys.exit(_say(error, config))
    except KeyboardInterrupt:
        interrupts.end()


def _say(error: Exception, config: ConfigDict, who: str = "") -> int:
    """Reports an error with config keys for the library's parameters; returns the exit code."""
    return say(error, who, _flags(config), "=")


def _as_one_of_many(main: Callable[[ConfigDict], None], config: ConfigDict, where: str) -> None:
    """Joins the other processes and runs; an error ends the process at once, so that the others do not wait for it."""
    from jaxwhiten.runtime import distributed

    logging.set_verbosity(logging.WARNING)
    try:
        distributed.start(where)
    except JaxwhitenError as error:
        sys.exit(say(error))
    name = _process()
    try:
        with _silenced_stdout(for_good=not distributed.is_writer()):  # gloo prints when the first exchange connects it
            distributed.check_same("the configuration", config.to_json_best_effort())
        main(config)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            return
        if is_broken_exchange(error):
            print(f"error: {name}: lost another process ({error}); the runtime says which", file=sys.stderr, flush=True)
            _await_verdict()
            code = 1
        elif isinstance(error, KeyboardInterrupt):
            print(interrupts.MESSAGE, file=sys.stderr)
            code = interrupts.EXIT_CODE
        elif isinstance(error, JaxwhitenError):
            code = _say(error, config, f"{name}: ")
        else:
            traceback.print_exc()
            code = 1
        _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends a process that has failed, without waiting for the others.

    The runtime ends the others within `distributed.HEARTBEAT_SECONDS` and names the process that died.
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
    from jaxwhiten.runtime import distributed

    time.sleep(distributed.HEARTBEAT_SECONDS + 10)


def _process() -> str:
    """The name of this process in messages."""
    import jax

    return f"process {jax.process_index()} of {jax.process_count()} on {socket.gethostname()}"


@contextlib.contextmanager
def _silenced_stdout(for_good: bool) -> Iterator[None]:
    """Suppresses all output to stdout within the block, also from C++; with `for_good` also after it."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        if not for_good:
            os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _parse(arguments: list[str]) -> list[str]:
    """Parses arguments with absl; a value of a wrong type ends the program with one line."""
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        sys.exit(say(InputError(f"{str(error).removeprefix('flag ')}: see --help.")))


def _split(arguments: list[str], default_config: str) -> tuple[str, str | None, list[str]]:
    """The config file, the value of `--distributed` (None if it is not given), and all other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", "-config", default=default_config)
    parser.add_argument("--distributed", "-distributed", nargs="?", const="")
    own, rest = parser.parse_known_args(arguments)
    if own.distributed and own.distributed in arguments:  # it could be taken for something else
        raise InputError(f"--distributed requires its value after an equals sign: --distributed={own.distributed}")
    return own.config, own.distributed, rest


def _load(path: str) -> tuple[ModuleType, str]:
    """The config file as a module, and the argument of its `get_config`, from `FILE:ARGUMENT`."""
    file, _, argument = path.partition(":")
    if not Path(file).is_file():
        raise unknown_name("config file", path, map(str, Path("configs").glob("*.py")))
    spec = importlib.util.spec_from_file_location("jaxwhiten_config", file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, argument


def _help(path: str, config: ConfigDict) -> str:
    """Usage, and every config key with its default; a parameter of a whitening or a training with its help text."""
    program = sys.modules["__main__"]
    name = getattr(program.__spec__, "name", None)
    usage = f"python -m {name}" if name else sys.argv[0]
    parser = Parser(
        prog=usage,
        usage=f"{usage} [--config FILE] [--config.KEY=VALUE ...] [--distributed[=ADDRESS:PORT,INDEX,COUNT]]",
        description=(program.__doc__ or "").partition("\n")[0],
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32),
    )
    parser.add_argument("--config", metavar="FILE", help=f"Python file with the keys, which is executed; here: {path}")
    parser.add_argument("--distributed", metavar="WHERE", help=_DISTRIBUTED)
    keys = parser.add_argument_group(f"keys and their defaults; the comments in {path} explain them")
    known = {knob.name: knob.help for knob in WHITENING}
    known |= {field.name: field.metadata["help"] for field in dataclasses.fields(TrainingOptions)}
    for key, value in config_keys(config).items():
        if not isinstance(value, ConfigDict):
            text = "; ".join(filter(None, (f"default {value!r}", known.get(key))))
            keys.add_argument(f"--config.{key}", metavar="VALUE", help=text.replace("%", "%%"))
    return parser.format_help()


def _flags(config: ConfigDict) -> dict[str, str]:
    """The flag of every key, also under the library's name for it."""
    flags = {key: f"--config.{key}" for key in config_keys(config)}
    return {name: flags[key] for name, key in _OTHER_NAMES.items() if key in flags} | flags


def _check(arguments: list[str], config: ConfigDict) -> None:
    """Answers a mistyped flag or key with the nearest names, before absl prints a stack trace."""
    known = set(config_keys(config))
    for argument in arguments:
        name = argument.lstrip("-").partition("=")[0]
        key = name.removeprefix("config.")
        if key != name and key not in known:
            raise unknown_name("config key", key, known)
        if key == name and argument.startswith("--") and not {name, name.removeprefix("no")} & set(flags.FLAGS):
            raise unknown_name("flag", f"--{name}", ("--config", "--config.KEY=VALUE", "--distributed", "--help"))


def config_keys(config: ConfigDict) -> dict[str, Any]:
    """Every value of a config by its key, such as `"data.name"`, including sections such as `"data"`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = config_keys(value) if isinstance(value, ConfigDict) else {}
        found |= {key: value, **{f"{key}.{rest}": leaf for rest, leaf in inner.items()}}
    return found
