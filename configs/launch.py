"""How every program starts: `--config FILE`, `--config.key=value` overrides, one-line errors, exit codes.

A program is `run(main, "configs/sts.py")`; `main` gets the finished `ConfigDict`. Exit code 0 is success, 2 something
the user can mend (a typo, a missing file, bad data), 1 anything else, 130 an interrupt.
"""

from __future__ import annotations

import importlib.util
import sys
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
        config = config_flags.DEFINE_config_file("config", default=default_config, help_string="A file in configs/.")
        app.run(lambda _: _guarded(main, config.value))
    except JaxwhitenError as error:
        sys.exit(_say(error))


def _guarded(main: Callable[[ConfigDict], None], config: ConfigDict) -> None:
    logging.set_verbosity(logging.WARNING)  # libraries' INFO lines would bury the program's own
    try:
        main(config)
    except JaxwhitenError as error:
        sys.exit(_say(error))
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)


def _say(error: JaxwhitenError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _check_overrides(arguments: list[str], default_config: str) -> None:
    """Answers a mistyped config file, key or flag with the nearest names, before absl prints a stack trace."""
    path, keys = default_config, []
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if name == "config":
            path = value if equals else arguments[position + 1] if position + 1 < len(arguments) else ""
        elif name.startswith("config."):
            keys.append(name.removeprefix("config."))
        elif argument.startswith("--") and name not in flags.FLAGS and name.removeprefix("no") not in flags.FLAGS:
            raise unknown_name("flag", f"--{name}", ("config", "config.KEY", "help"))
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
