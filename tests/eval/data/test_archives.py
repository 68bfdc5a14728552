"""Archives from strangers: only the files asked for come out, to their own names, in bounded time and memory."""

import io
import os
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from eval.data import remote
from jaxwhiten.errors import DataError
from tests.fuzz.common import attempt, fuzz

WANTED = ["STS/a.txt", "SICK/b.txt"]
GOOD = {"STS/a.txt": b"one\n" * 50, "SICK/b.txt": b"two\n"}
NAMES = st.sampled_from(
    [
        *WANTED,
        *(f"x/y/{name}" for name in WANTED),
        *(f"../{name}" for name in WANTED),
        *(f"/{name}" for name in WANTED),
        "/etc/passwd",
        "../../outside.txt",
        "STS",
        "STS/a.txt/",
        "STS//a.txt",
        "./STS/a.txt",
        "STS/a.txt\0.txt",
        "..",
        "x" * 300 + "/STS/a.txt",
        "é/STS/a.txt",
    ]
)
KINDS = [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"S"]
FORMATS = st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])


def files_below(folder):
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


def unpacked(tmp_path, content):
    """Runs `extract` and checks what it left, whatever it said."""
    root = tmp_path / "root"
    (root / "here").mkdir(parents=True, exist_ok=True)
    for name in files_below(root):
        (root / name).unlink()
    (tmp_path / "a.tar").write_bytes(content)
    _, error = attempt(lambda: remote.extract(tmp_path / "a.tar", root / "here", WANTED), names="a.tar")
    left = files_below(root)
    assert left <= {f"here/{name}" for name in WANTED}
    for name in left:
        assert not (root / name).is_symlink()
        assert (root / name).stat().st_size <= remote.MAX_FILE
    if error is None:
        assert len(left) == len(WANTED)
    else:
        assert isinstance(error, DataError)
    return error


@fuzz()
@given(data=st.data())
def test_members_of_every_kind(tmp_path, data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=data.draw(FORMATS)) as tar:
        for _ in range(data.draw(st.integers(0, 6))):
            member = tarfile.TarInfo(data.draw(NAMES))
            member.type = data.draw(st.sampled_from(KINDS))
            member.linkname = data.draw(st.sampled_from(["", "/etc/passwd", "../..", "STS/a.txt"]))
            member.mode = data.draw(st.sampled_from([0, 0o644, 0o4777]))
            content = data.draw(st.binary(max_size=20)) if member.type == tarfile.REGTYPE else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        if data.draw(st.booleans()):
            for name, content in GOOD.items():
                member = tarfile.TarInfo(f"senteval/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    unpacked(tmp_path, out.getvalue())


def test_a_sparse_member_that_unpacks_to_terabytes(tmp_path):
    """GNU's sparse files name their full size apart from what lies in the archive."""
    member = tarfile.TarInfo("STS/a.txt")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 0
    header[483:495] = b"%011o\0" % (8**10)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    error = unpacked(tmp_path, bytes(header) + bytes(1024))
    assert "bytes, more than" in str(error)
