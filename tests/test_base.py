"""The base requirements: every command and public name works with them alone, or names the extra that it needs."""

import importlib.metadata
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

import jaxwhiten
from jaxwhiten import load_sts
from jaxwhiten.commands.cli import COMMANDS
from tests.conftest import ROOT
from tests.tiny import SENTENCES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Command lines, each with the extra that it needs; a line may read what those above it wrote.
LINES = [
    ("encode texts.txt -o v.npy --model {model} --pooling mean", None),
    ("embed texts.txt -o parts --model {model} --pooling mean", "data"),
    ("fit texts.txt -o w.safetensors --moments m.safetensors --model {model} --pooling mean", None),
    ("fit texts.txt -o small/ --bytes 4 --model {model} --pooling mean", None),
    ("apply w.safetensors v.npy -o whitened.npy", None),
    ("apply w.safetensors v.npy -o whitened.parquet", "data"),
    ("fit m.safetensors m.safetensors -o both.safetensors", None),
    ("inspect w.safetensors", None),
    ("score pairs.tsv --model {model} --pooling mean", None),
    ("train pairs.tsv -o tuned --objective cosent --batch-size 2 --held-out 0 --model {model} --pooling mean", "train"),
    ("index texts.txt -o idx --backend jax --model small/", None),
    ("add idx texts.txt --model small/", None),
    ("remove idx 1", None),
    ("index texts.txt -o faiss --model small/", "cpu"),
    ("search idx music", None),
    ("serve {model}", "serve"),
    ("distill -o static --model {model} -k 8 --no-fit", None),
    ("export -o exported --model {model} --pooling mean", None),
    ("export -o onnx --format onnx --model {model} --pooling mean", "cpu"),
    ("verify {model}", None),
    ("encode texts.txt -o old.npy --model {old} --pooling mean", None),
    ("verify", None),
    ("verify idx", None),
]
# In a process of its own, where the packages that base requirements do not bring cannot be imported.
WALK = """
import importlib.machinery, importlib.metadata, io, json, pkgutil, shlex, sys
from contextlib import redirect_stderr, redirect_stdout
blocked, lines = json.loads(sys.stdin.read())
class Base:
    found = sys.meta_path[:]
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in blocked:
            return next(filter(None, (finder.find_spec(name, path, target) for finder in self.found)), None)
    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        return importlib.machinery.PathFinder.find_distributions(context)
sys.meta_path[:] = [Base()]
import jaxwhiten
from jaxwhiten.commands import cli
from jaxwhiten.errors import MissingDependencyError
said = {}
def note(name, run):
    out = io.StringIO()
    with redirect_stderr(out), redirect_stdout(io.StringIO()):
        try:
            code = run()
        except MissingDependencyError as error:
            code = f"error: {error}"
        except SystemExit as end:
            code = end.code
    said[name] = [code, out.getvalue()]
for line in lines:
    note(line, lambda: cli.main(shlex.split(line)))
for name in jaxwhiten.__all__:
    note(name, lambda: getattr(jaxwhiten, name) and 0)
for module in pkgutil.walk_packages(jaxwhiten.__path__, "jaxwhiten."):
    note(module.name, lambda: importlib.import_module(module.name) and 0)
note("hub", lambda: cli.main("encode texts.txt -o hub.npy --model nobody/nothing".split()))
note("train", lambda: importlib.import_module("train"))
sys.argv[:1] = ["-m"]
note("eval", lambda: importlib.import_module("eval"))
print(json.dumps([said, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def normal(name):
    return re.sub("[-_.]+", "-", name).lower()


def brought(requirements, found=()):
    """The installed packages that requirements bring, by their normal names."""
    found = set(found)
    for text in requirements:
        need = Requirement(text)
        if normal(need.name) in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found.add(normal(need.name))
        try:
            found |= brought(importlib.metadata.requires(need.name) or (), found)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@pytest.fixture(scope="module")
def packages():
    """The packages that hold each importable module."""
    return {name: set(map(normal, found)) for name, found in importlib.metadata.packages_distributions().items()}


@pytest.fixture(scope="module")
def walked(tiny_model, packages, tmp_path_factory):
    """What each line, name and module said, and all that was imported for them."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in SENTENCES * 6 if text))
    pairs = load_sts("sts_sample").splits["test"]
    rows = list(zip(pairs.sentence1, pairs.sentence2, map(str, pairs.score), strict=True))[:40]
    (folder / "pairs.tsv").write_text(
        "".join("\t".join(row) + "\n" for row in [("sentence1", "sentence2", "score"), *rows])
    )
    old = shutil.copytree(tiny_model, folder / "old")
    vocabulary = json.loads((old / "tokenizer.json").read_text())["model"]["vocab"]
    (old / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)))
    (old / "tokenizer.json").unlink()
    base = brought(PROJECT["dependencies"]) | {"jaxwhiten"}
    blocked = sorted(name for name, found in packages.items() if not found & base)
    filled = [line.format(model=shlex.quote(str(tiny_model)), old=shlex.quote(str(old))) for line, _ in LINES]
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        input=json.dumps([blocked, filled]),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, imported = json.loads(done.stdout.splitlines()[-1])
    return {**said, **{line: said[call] for (line, _), call in zip(LINES, filled, strict=True)}}, imported


def test_every_command_is_walked():
    assert {line.split()[0] for line, _ in LINES} == set(COMMANDS)


def test_a_command_works_or_names_its_extra(walked):
    outcomes = {line: walked[0][line] for line, _ in LINES}
    assert {line: outcomes[line] for line, extra in LINES if outcomes[line][0] != (2 if extra else 0)} == {}
    assert [line for line, extra in LINES if extra and f"jaxwhiten[{extra}]" not in outcomes[line][1]] == []


def test_public_names_modules_and_programs(walked):
    """All can be imported but for training, the modules of programs, which name their extra."""
    names = [name for name in walked[0] if name.startswith("jaxwhiten.") or name in jaxwhiten.__all__]
    assert {"Encoder", "SpectrumCode", "jaxwhiten.training.loop"} <= set(names)
    failed = {name for name in names if walked[0][name][0] != 0}
    assert failed == {"jaxwhiten.runners.beam", "jaxwhiten.serving", "train"}
    assert "jaxwhiten[train]" in walked[0]["train"][0]
    code, shown = walked[0]["eval"]  # as `python -m eval.sts` imports it
    assert code == 2
    assert re.fullmatch(r"error: .*matplotlib.*jaxwhiten\[eval\].*\n", shown)


def test_the_extra_named_brings_the_package(walked):
    text = "\n".join(f"{code}\n{shown}" for code, shown in walked[0].values())
    found = set(re.findall(r"needs the package (\S+), which is not installed: pip install '\.\[(\w+)\]'", text))
    assert {("matplotlib", "eval"), ("pyarrow", "data")} <= found
    for package, extra in found:
        assert package in {normal(Requirement(text).name) for text in PROJECT["optional-dependencies"][extra]}, package


def test_base_requirements_are_used(walked, packages):
    """Something above imported each; a type checker reads jaxtyping in annotations."""
    required = {normal(Requirement(text).name) for text in PROJECT["dependencies"]}
    used = {package for name in walked[1] for package in packages.get(name, ())}
    assert required - used <= {"jaxtyping"}
