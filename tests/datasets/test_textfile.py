"""Lines from hostile text files."""

import gzip
from pathlib import Path

import pytest

from jaxwhiten.datasets import numbered_lines
from jaxwhiten.errors import DataError


def read_lines(path):
    return [line for _, line in numbered_lines(path)]


def write(folder: Path, data: bytes, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_truncated_gzip_names_the_file(tmp_path):
    data = gzip.compress(bytes(range(32, 127)) * 100 + b"\n" + b"x\n" * 1000)
    path = write(tmp_path, data[:-8], "cut.tsv.gz")
    with pytest.raises(DataError, match=r"cut\.tsv\.gz, line \d+: "):
        read_lines(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"fine\nfine\nbad \xff byte\n", "line 3: not UTF-8"),
        ("fine\nfine\nbad\n".encode("utf-16-le"), "line 1: .*a NUL"),
    ],
)
def test_bad_line_is_named(tmp_path, data, reason):
    with pytest.raises(DataError, match=rf"file\.txt, {reason}"):
        list(numbered_lines(write(tmp_path, data)))


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot be read"):
        read_lines(tmp_path)
