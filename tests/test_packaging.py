"""What packages, CI and releases consist of: extras that exist, versions that agree, and what the wheel holds."""

import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

import jaxwhiten
from tests.conftest import ROOT

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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, as `make wheel` builds them, which also installs and tries them."""
    pytest.importorskip("hatchling", reason="the extra test")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.mark.slow
def test_the_wheel_holds_the_package(built):
    archive = zipfile.ZipFile(built[0])
    names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"jaxwhiten", f"jaxwhiten-{jaxwhiten.__version__}.dist-info"}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "jaxwhiten").rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("jaxwhiten/")} == {
        name for name in here if "__pycache__" not in name
    }
    assert sum("licenses/LICENSE" in name for name in names) == 1
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = archive.read(metadata).decode()
    for line in (f"Version: {jaxwhiten.__version__}", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert line in text
    assert re.findall(r'\]\((?!https:|#).*?\)|src(?:set)?="(?!https:).*?"', text) == []  # PyPI has no files of ours
    assert "/raw/main/docs/images/quality.png" in text
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in required if "torch" in line or "tensorflow" in line]


@pytest.mark.slow
def test_the_sdist_holds_no_more_than_builds_the_wheel(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = "README.md LICENSE CHANGELOG.md CITATION.cff pyproject.toml PKG-INFO .gitignore"
    assert {name for name in names if not name.startswith("jaxwhiten/")} <= set(wanted.split())
