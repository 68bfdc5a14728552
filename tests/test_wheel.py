"""The wheel: what is in it, and that it works where nothing else of the project lies."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import jaxwhiten

pytest.importorskip("hatchling", reason="needs hatchling to build the wheel: pip install 'jaxwhiten[test]'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with nothing but the wheel in it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    target = subprocess.run(
        [folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    subprocess.run([*pip, *options, str(wheel)], check=True, timeout=300)
    return folder, Path(target)


def call(environment, *arguments, **options):
    """A command of the environment, run away from the checkout."""
    folder, _ = environment
    path, *rest = arguments
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [folder / "bin" / path, *rest], cwd=folder, env=clean, capture_output=True, text=True, timeout=300, **options
    )


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"jaxwhiten", f"jaxwhiten-{jaxwhiten.__version__}.dist-info"}
    inside = {name for name in names if name.startswith("jaxwhiten/")}
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "jaxwhiten").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == here
    assert sum("licenses/LICENSE" in name for name in names) == 1


def test_what_it_says_about_itself(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    text = archive.read(name).decode()
    for line in (f"Version: {jaxwhiten.__version__}", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert line in text
    relative = re.findall(r'\]\((?!https:|#).*?\)|src(?:set)?="(?!https:).*?"', text)
    assert relative == []  # PyPI has no files of the repository
    assert "/raw/main/docs/images/quality.png" in text
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in required if "torch" in line or "tensorflow" in line]


def test_the_command_runs_in_the_environment(environment, tiny_model):
    """The dependencies are lent by the environment the tests run in; jaxwhiten itself is the wheel's."""
    _, target = environment
    (target / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = call(environment, "python", "-c", "import jaxwhiten; print(jaxwhiten.__file__)", check=True).stdout
    assert Path(where.strip()).is_relative_to(target)
    assert call(environment, "jaxwhiten", "--version", check=True).stdout == f"jaxwhiten {jaxwhiten.__version__}\n"
    arguments = ["encode", "--model", str(tiny_model), "--pooling", "mean", "--output", "v.npy", "-"]
    done = call(environment, "jaxwhiten", *arguments, input="One sentence.\nAnother.\n")
    assert done.returncode == 0, done.stderr
    code = "import numpy; print(numpy.load('v.npy').shape)"
    assert call(environment, "python", "-c", code, check=True).stdout == "(2, 32)\n"
