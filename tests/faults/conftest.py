"""What the fault tests share with those of the commands, and a disk of half a megabyte."""

import subprocess

import numpy as np
import pytest

from jaxwhiten import io
from tests.commands.conftest import cache, corpus, run, whitening_file  # noqa: F401 (fixtures)


def earlier(path, kind=""):
    """Writes an earlier output, which a command may replace, and returns its bytes."""
    if kind:
        io.save_tensors(path, {"a": np.zeros(3)}, kind=kind, header={})
    else:
        start = {".npy": b"\x93NUMPY", ".parquet": b"PAR1", ".jsonl": b"{"}[path.suffix]
        path.write_bytes(start + b"the old one")
    return path.read_bytes()


@pytest.fixture
def disk(tmp_path):
    """An empty file system of 512 KiB; a skip where mounting is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
