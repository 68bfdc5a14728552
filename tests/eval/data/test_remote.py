"""Downloads and archives from strangers, served on loopback."""

import tarfile

import pytest

from eval.data import remote
from jaxwhiten.errors import DataError
from tests.eval.data.conftest import make_tar


def test_fetch_writes_the_file_once(serve, tmp_path):
    url, asked = serve({"/a.tar": b"content" * 100_000})
    path = remote.fetch(f"{url}/a.tar", tmp_path / "down" / "a.tar", "data")
    assert path.read_bytes() == b"content" * 100_000
    assert remote.fetch(f"{url}/a.tar", path, "data") == path
    assert asked == ["/a.tar"]


WANTED = ["STS/a.txt", "SICK/b.txt"]
GOOD = {"STS/a.txt": b"a", "SICK/b.txt": b"b"}


def unpack(tmp_path, data: bytes) -> dict[str, bytes]:
    (tmp_path / "a.tar").write_bytes(data)
    out = tmp_path / "deep" / "out"
    remote.extract(tmp_path / "a.tar", out, WANTED)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "a.tar"]
    assert all(path.is_relative_to(out) and not path.is_symlink() for path in files)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("prefix", ["", "./", "downstream/", "SentEval/data/downstream/", "/", "../../", "x/../"])
def test_wanted_files_come_out_wherever_they_lie(tmp_path, prefix):
    """The place in the archive never becomes the place on disk."""
    files = {prefix + name: data for name, data in GOOD.items()} | {prefix + "STS/other.txt": b"no", "../evil": b"no"}
    link = tarfile.TarInfo(prefix + WANTED[0])
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert unpack(tmp_path, make_tar(files, link)) == GOOD


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "MAX_FILE", 10)
    with pytest.raises(DataError, match=r"a\.txt has 11"):
        unpack(tmp_path, make_tar({"STS/a.txt": b"x" * 11}))
    monkeypatch.setattr(remote, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match="3 members"):
        unpack(tmp_path, make_tar({f"x{i}": b"" for i in range(4)} | GOOD))
