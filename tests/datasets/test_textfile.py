"""Lines from hostile text files."""

import gzip
from pathlib import Path

import pytest

from jaxwhiten.datasets import numbered_lines
from jaxwhiten.datasets.textfile import BadRows
from jaxwhiten.errors import DataError


def read_lines(path):
    return [line for _, line in numbered_lines(path)]


def write(folder: Path, data: bytes, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_line_ends_and_byte_order_mark(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfone\r\n\ntwo\xe2\x80\xa8still two\n three")
    assert read_lines(path) == ["one", "", "two\u2028still two", " three"]


def test_empty_file_has_no_lines(tmp_path):
    assert read_lines(write(tmp_path, b"")) == []
    assert read_lines(write(tmp_path, b"\n")) == [""]


@pytest.mark.parametrize("cut", [1, 8, 20])
def test_truncated_gzip_names_the_file(tmp_path, cut):
    data = gzip.compress(bytes(range(32, 127)) * 100 + b"\n" + b"x\n" * 1000)
    path = write(tmp_path, data[:-cut], "cut.tsv.gz")
    with pytest.raises(DataError, match=r"cut\.tsv\.gz, line \d+: "):
        read_lines(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"fine\nfine\nbad \xff byte\n", "line 3: not UTF-8"),
        (b"fine\nfine\nbad \0 byte\n", "line 3: .*a NUL"),
        ("fine\nfine\nbad\n".encode("utf-16-le"), "line 1: .*a NUL"),
        (b"fine\nfine\nhalf \xc3\n\xa9\n", "line 3: not UTF-8"),
    ],
)
def test_bad_line_is_named(tmp_path, data, reason):
    with pytest.raises(DataError, match=rf"file\.txt, {reason}"):
        list(numbered_lines(write(tmp_path, data)))


def test_bad_lines_are_counted_when_skipped(tmp_path):
    path = write(tmp_path, b"a\n\xff\nb\n\0\nc\n")
    bad = BadRows(path, skip=True)
    assert list(numbered_lines(path, bad)) == [(1, "a"), (3, "b"), (5, "c")]
    assert bad.count == 2


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot be read"):
        read_lines(tmp_path)
