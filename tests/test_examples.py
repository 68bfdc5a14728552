"""The examples in docstrings run, and every exported name that computes has one."""

import doctest
import importlib
import inspect
import shutil
import typing
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxwhiten.training

PACKAGES = ["", ".codes", ".datasets", ".encoding", ".errors", ".export", ".head", ".io", ".losses", ".metrics"]
PACKAGES += [".metrics.bootstrap", ".models", ".scoring", ".search", ".training", ".views", ".whitening"]


def _public(package):
    """The callables that a package exports, but for warnings and types."""
    module = importlib.import_module(f"jaxwhiten{package}")
    names = getattr(module, "__all__", None) or [n for n, found in vars(module).items() if _own(module, found)]
    found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return {name: one for name, one in found.items() if inspect.isroutine(one) or _is_class(one)}


def _own(module, found):
    return getattr(found, "__module__", None) == module.__name__


def _all(package):
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in getattr(module, "__all__", None) or NAMES[package]}


def _is_class(one):
    return inspect.isclass(one) and one is not typing.Any and not issubclass(one, Warning)


FILES = {
    "texts.txt": "A dog runs.\nIt rains.\n",
    "pairs.tsv": "sentence1\tsentence2\tscore\nA dog runs.\tA dog ran.\t4.5\nA dog runs.\tIt rains.\t0\n",
    "searches.tsv": "query\tdocument\na dog\tA dog runs.\nrain\tIt rains.\n",
}
NAMES = {f"jaxwhiten{package}": _public(package) for package in PACKAGES}
ONCE = {id(one): (package, name) for package, names in reversed(NAMES.items()) for name, one in names.items()}


def _examples(own):
    """The docstrings of a function, or of a class and its methods, that have an example."""
    methods = [one for one in vars(own).values() if inspect.isfunction(one)] if inspect.isclass(own) else []
    texts = [inspect.getdoc(one) or "" for one in (own, *methods)]
    return [text for text in texts if ">>>" in text]


@pytest.mark.parametrize("package", sorted({package for package, _ in ONCE.values()}))
def test_the_examples_run(package, cross_encoder, tmp_path, monkeypatch):
    """As a reader would type them, those of each name in a folder with the files that they name."""
    names = sorted(name for owner, name in ONCE.values() if owner == package)
    assert [name for name in names if not _examples(NAMES[package][name])] == []
    written = list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where a few rows are enough to show how it is written
        for name in names:
            folder = tmp_path / name
            folder.mkdir()
            monkeypatch.chdir(folder)
            shutil.copytree(cross_encoder, "cross")
            for file, text in FILES.items():
                Path(file).write_text(text)
            _run(package, name, written)
    assert not written, "".join(written)


def _run(package, name, written):
    """Runs the examples of a name, and writes what fails."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    globs = {"np": np, "jax": jax, "jnp": jax.numpy, "Path": Path, **_all("jaxwhiten"), **_all(package)}
    for text in _examples(NAMES[package][name]):
        if "setup" in text:  # as the example of `Setup` makes it
            text = f"{_examples(jaxwhiten.training.Setup)[0]}\n\n{text}"
        runner.run(doctest.DocTestParser().get_doctest(text, globs.copy(), name, None, None), out=written.append)
