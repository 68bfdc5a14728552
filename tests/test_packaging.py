"""What packages, CI and releases consist of: extras that exist, versions that agree, an sdist that builds the wheel."""

import itertools
import re
import subprocess
import sys
import tarfile
import tomllib

import pytest

import jaxwhiten
from tests.conftest import ROOT, unpack

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = ROOT / "Makefile"
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.sh"))
READERS = [MAKEFILE, ROOT / ".ci" / "run", *sorted((ROOT / "ci").glob("*.sh")), *EXPERIMENTS, *WORKFLOWS]
READERS += [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# How extras are named: a list of make's, a stamp of make's, what an experiment begins with, a requirement of pip's.
_LIST = re.compile(r"EXTRAS[\"']?\s*(?:[?:]?=|:)\s*\"?([a-z][\w,-]*)")
_STAMP = re.compile(r"call stamp,([a-z-]+)\)")
_SETUP = re.compile(r"/setup\.sh\" (?:\"[^,]*,)?([a-z][a-z,-]*)")
_PIP = re.compile(r"(?:jaxwhiten|\.|\$wheel)\[([a-z,-]+)\]")


def extras(text):
    lists = [found.split(",") for pattern in (_LIST, _SETUP, _PIP) for found in pattern.findall(text)]
    return {
        *itertools.chain.from_iterable(lists),
        *(name for found in _STAMP.findall(text) for name in found.split("-")),
    }


def test_every_extra_named_is_there():
    there = set(PROJECT["optional-dependencies"])
    unknown = {path.name: extras(path.read_text(encoding="utf-8")) - there for path in READERS}
    assert {name: missing for name, missing in unknown.items() if missing} == {}


def test_versions_agree():
    """Of the package, the citation and the changelog; of Python in the classifiers, CI and `requires-python`."""
    version = jaxwhiten.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    entries = re.findall(
        r"^## \[(.*?)\] - (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert [entry for entry, _ in entries] == [version]
    pythons = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    test = (ROOT / ".github" / "workflows" / "ci.yml").read_text().partition("\n  test:\n")[2]
    assert re.search(r"python: \[(.*)\]", test)[1] == ", ".join(f'"{python}"' for python in pythons)
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert (ROOT / "jaxwhiten" / "py.typed").is_file()


@pytest.mark.slow
def test_the_sdist_holds_what_builds_the_wheel(tmp_path):
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True
    )
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        unpack(archive, tmp_path)
    outside = {name for name in names if not name.startswith("jaxwhiten/")}
    assert outside <= {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
        "PKG-INFO",
        ".gitignore",
    }
    (folder,) = tmp_path.glob("jaxwhiten-*/")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=folder, check=True
    )
    assert list(tmp_path.glob("*.whl"))
