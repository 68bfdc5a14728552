"""How every program starts: `--config FILE`, `--config.key=value` overrides, one-line errors, exit codes.

A program is `run(main, "configs/sts.py")`; `main` gets the finished `ConfigDict`. Exit code 0 is success, 2 something
the user can mend (a typo, a missing file, bad data), 1 anything else, 130 an interrupt.

`--distributed` makes the process one of several of one job (docs/scaling.md). Alone it asks the environment of Slurm, a
TPU pod, Open MPI or Kubernetes; elsewhere it says where process 0 listens, which process this is, and of how many:
`--distributed=ADDRESS:PORT,INDEX,COUNT`. Process 0 writes and prints; the others only report errors. When one fails,
all end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from jaxwhiten.errors import InputError, JaxwhitenError, unknown_name


def run(main: Callable[[ConfigDict], None], default_config: str) -> None:
    """Parses the command line, calls `main(config)` and ends the process.

    Args:
      main: The program. It reads the config and calls the library.
      default_config: The config file used when `--config` is not given.
    """
    try:
        _check_overrides(sys.argv[1:], default_config)
        sys.argv, where = _take_distributed(sys.argv)
        config = config_flags.DEFINE_config_file("config", default=default_config, help_string="A file in configs/.")
        flags.DEFINE_string("distributed", None, "One process of several: nothing, or ADDRESS:PORT,INDEX,COUNT.")
        app.run(lambda _: _guarded(main, config.value) if where is None else _as_one_of_many(main, config.value, where))
    except JaxwhitenError as error:
        sys.exit(_say(error))


def _guarded(main: Callable[[ConfigDict], None], config: ConfigDict) -> None:
    logging.set_verbosity(logging.WARNING)  # libraries' INFO lines would bury the program's own
    try:
        main(config)
    except JaxwhitenError as error:
        sys.exit(_say(error))
    except KeyboardInterrupt:
        sys.exit(_interrupted())


def _as_one_of_many(main: Callable[[ConfigDict], None], config: ConfigDict, where: str) -> None:
    """Joins the other processes and runs; on an error ends at once, for the others must not wait for this process."""
    from jaxwhiten.runtime import distributed

    logging.set_verbosity(logging.WARNING)
    try:
        distributed.start(where)
    except JaxwhitenError as error:
        sys.exit(_say(error))
    name = distributed.name()
    try:
        with _silenced_stdout(for_good=not distributed.is_writer()):  # gloo prints when the first exchange connects it
            distributed.check_same("the configuration", config.to_json_best_effort())
        main(config)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            return
        if distributed.is_broken_exchange(error):
            print(f"error: {name}: lost another process ({error}); the runtime says which", file=sys.stderr, flush=True)
            distributed.await_verdict()
            code = 1
        elif isinstance(error, JaxwhitenError):
            code = _say(error, f"{name}: ")
        elif isinstance(error, KeyboardInterrupt):
            code = _interrupted()
        else:
            traceback.print_exc()
            code = 1
        distributed.leave(code)


@contextlib.contextmanager
def _silenced_stdout(for_good: bool) -> Iterator[None]:
    """Nothing reaches stdout within the block, not from C++ either; `for_good`: nor after it."""
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


def _take_distributed(arguments: list[str]) -> tuple[list[str], str | None]:
    """The command line without `--distributed`, and its value: None where it is not given, empty where it is alone."""
    own = [argument for argument in arguments[1:] if _flag_name(argument) == "distributed"]
    rest = [argument for argument in arguments if argument not in own]
    return rest, own[-1].partition("=")[2] if own else None


def _flag_name(argument: str) -> str:
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def _say(error: JaxwhitenError, who: str = "") -> int:
    print(f"error: {who}{error}", file=sys.stderr)
    return error.exit_code


def _interrupted() -> int:
    print("interrupted; what was finished is kept", file=sys.stderr)
    return 130


def _check_overrides(arguments: list[str], default_config: str) -> None:
    """Answers a mistyped config file, key or flag with the nearest names, before absl prints a stack trace."""
    path, keys = default_config, []
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if name == "config":
            path = value if equals else arguments[position + 1] if position + 1 < len(arguments) else ""
        elif name.startswith("config."):
            keys.append(name.removeprefix("config."))
        elif name == "distributed" and argument.startswith("-"):
            if not equals and arguments[position + 1 : position + 2] and not arguments[position + 1].startswith("-"):
                raise InputError(
                    f"--distributed takes its value behind an equals sign: {argument}={arguments[position + 1]}"
                )
        elif argument.startswith("--") and name not in flags.FLAGS and name.removeprefix("no") not in flags.FLAGS:
            raise unknown_name("flag", f"--{name}", ("config", "config.KEY", "distributed", "help"))
    file = Path(path.partition(":")[0])
    if not file.is_file():
        raise unknown_name("config file", path, (str(found) for found in sorted(Path("configs").glob("*.py"))))
    if not keys:
        return
    known = set(_paths(_load(path)))
    for key in keys:
        if key not in known and not any(known_key.startswith(f"{key}.") for known_key in known):
            raise unknown_name("config key", key, known)


def _load(path: str) -> ConfigDict:
    """What the config file's `get_config` returns; `FILE:ARGUMENT` passes the argument, as absl's flag does."""
    file, _, argument = path.partition(":")
    spec = importlib.util.spec_from_file_location("jaxwhiten_config", file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(argument) if argument else module.get_config()


def _paths(config: ConfigDict, prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, ConfigDict):
            yield from _paths(value, f"{prefix}{key}.")
