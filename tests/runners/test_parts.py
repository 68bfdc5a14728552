"""Parts of a corpus: resumed at any point they are those of an unbroken run, and nothing is lost in silence."""

import functools
import json
import operator
import os
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.commands import cli
from jaxwhiten.datasets import chunks
from jaxwhiten.errors import DataError, FormatError, MismatchError
from jaxwhiten.runners import Parts, Source, embed_files
from tests.runners.program import equal
from tests.sentences import generated

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
TEXTS = generated(103)
HOW = {"part_rows": 10, "show_progress": False}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("sources")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:40]) + "\n")
    lines = [json.dumps({"key": f"k{i}", "text": text}) for i, text in enumerate(TEXTS[40:75])]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"text": TEXTS[75:]}), tmp_path / "c.parquet")
    b = Source(str(tmp_path / "b.jsonl"), "jsonl", "text", "key")
    return [Source(str(tmp_path / "a.txt")), b, Source(str(tmp_path / "c.parquet"), "parquet", "text")]


@pytest.fixture(scope="module")
def whole(encoder, sources, tmp_path_factory):
    """The parts of an unbroken run."""
    folder = tmp_path_factory.mktemp("whole") / "parts"
    done = embed_files(sources, folder, encoder, **HOW)
    assert (done["rows"], done["dead"]) == (103, 0)
    return folder, done


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole[0], tmp_path / "parts")


def read(folder):
    ids, vectors = zip(*Parts(folder).blocks(), strict=True)
    return functools.reduce(operator.iadd, ids, []), np.concatenate(vectors)


def test_rows_have_their_place_or_their_id_and_the_vectors_of_encode(encoder, whole):
    ids, vectors = read(whole[0])
    assert ids[:2] == ["a.txt:1", "a.txt:2"]
    assert ids[40:42] == ["k0", "k1"]
    assert ids[75] == "c.parquet:1"
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-6)
    equal(Parts(whole[0]).moments(), vectors)


def test_parts_that_are_gone_are_made_again_and_no_others(encoder, sources, folder, monkeypatch):
    before = read(folder)
    for number in (2, 5, 9):
        (folder / f"part-{number:06d}.parquet").unlink()
    with pytest.raises(FormatError, match="not finished"):
        Parts(folder).moments()
    made = counted(monkeypatch)
    embed_files(sources, folder, encoder, **HOW)
    assert made == [2, 5, 9]
    for found, wanted in zip(read(folder), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_other_settings_are_refused(encoder, sources, folder):
    for given, other, words in (
        (sources, encoder.with_pooling("cls"), "expected pooling='mean', got 'cls'"),
        (sources[:2], encoder, rf"plan {Parts(folder).plan.hash[:16]}.* differs in inputs"),
    ):
        with pytest.raises(MismatchError, match=words):
            embed_files(given, folder, other, **HOW)


def rewritten(path, text):
    """Writes a file with the size and time of before, where the size allows it."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_text_that_changes_between_two_runs_is_found_by_part_and_row(encoder, tmp_path):
    path, folder, texts = tmp_path / "a.txt", tmp_path / "parts", [f"{text} and more" for text in TEXTS]
    path.write_text("\n".join(texts))
    embed_files([Source(str(path))], folder, encoder, **HOW)
    for row in (0, 52, 102):
        (folder / "manifest.json").unlink(missing_ok=True)
        rewritten(path, "\n".join([*texts[:row], texts[row].replace("more", "less"), *texts[row + 1 :]]))
        with pytest.raises(
            MismatchError, match=rf"a\.txt, rows {row // 10 * 10 + 1} to .*: changed .* shard {row // 10} "
        ):
            embed_files([Source(str(path))], folder, encoder, **HOW)
    rewritten(path, "\n".join(texts[:50]))
    with pytest.raises(MismatchError, match="rows 51 to 60: changed"):
        embed_files([Source(str(path))], folder, encoder, **HOW)


def counted(monkeypatch):
    """The numbers of the shards that are written from here on."""
    made, write = [], Parts.write
    monkeypatch.setattr(Parts, "write", lambda self, e, chunk: made.append(chunk.number) or write(self, e, chunk))
    return made


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_file_that_was_appended_to_continues_and_a_new_time_refuses_nothing(encoder, tmp_path, end, monkeypatch):
    path, folder = tmp_path / "a.txt", tmp_path / "parts"
    (tmp_path / "b.txt").write_text("the last file\n")
    sources = [Source(str(path)), Source(str(tmp_path / "b.txt"))]
    path.write_text("\n".join(TEXTS[:25]) + end)
    embed_files(sources, folder, encoder, **HOW)
    made = counted(monkeypatch)
    os.utime(path)
    assert embed_files(sources, folder, encoder, **HOW)["rows"] == 26
    assert made == []
    with open(path, "a") as file:
        file.write(("" if end else "\n") + "\n".join(TEXTS[25:40]) + "\n")
    for _ in range(2):
        assert embed_files(sources, folder, encoder, **HOW)["rows"] == 41
        assert made == [4, 5]
    vectors = dict(zip(*read(folder), strict=True))
    assert vectors.keys() == {*(f"a.txt:{i + 1}" for i in range(40)), "b.txt:1"}
    found = [vectors[f"a.txt:{i + 1}"] for i in range(40)]
    np.testing.assert_allclose(found, encoder.encode(TEXTS[:40]), atol=1e-6)


@pytest.mark.parametrize("row", [3, 30, 60])
def test_a_text_that_changes_while_a_run_reads_is_found(encoder, tmp_path, row, monkeypatch):
    path, write = tmp_path / "a.txt", Parts.write
    path.write_text("\n".join(TEXTS))

    def change(self, encoder, chunk):
        found = write(self, encoder, chunk)
        if chunk.number == 6:
            rewritten(path, "\n".join([*TEXTS[:row], "x" * len(TEXTS[row]), *TEXTS[row + 1 :]]))
        return found

    monkeypatch.setattr(Parts, "write", change)
    with pytest.raises(MismatchError, match=rf"a\.txt, rows {row // 10 * 10 + 1} to .*: changed"):
        embed_files([Source(str(path))], tmp_path / "parts", encoder, **HOW)


@pytest.mark.parametrize("recorded", [True, False])
def test_nothing_is_read_twice_where_nothing_changed(encoder, sources, whole, folder, monkeypatch, recorded):
    """Also if the totals are gone: each part records what it was made of; what reads parts reads no source at all."""
    if not recorded:
        (folder / "manifest.json").unlink()
    monkeypatch.setattr(chunks, "rows" if recorded else "numbered_lines", None)
    assert embed_files(sources, folder, encoder, **HOW) == whole[1]
    monkeypatch.setattr(Source, "stat", None)
    assert len(read(folder)[0]) == 103


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "part-000003.json", "part-000003.parquet"])
def test_parts_are_regular_files_of_their_folder(folder, tmp_path, name, kind):
    (folder / name).rename(tmp_path / "elsewhere")
    if kind == "link":
        (folder / name).symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(folder / name) if kind == "pipe" else (folder / name).mkdir()
    with pytest.raises(FormatError):
        read(folder)


@pytest.mark.parametrize("at", [0, 24])
def test_poisoned_rows_are_told_with_file_and_row(encoder, tmp_path, at):
    lines = [text.encode() for text in TEXTS[:25]]
    for number, bad in enumerate((b"\xff\xfe", b"x" * (17 << 20))):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"\n".join([*lines[:at], bad, *lines[at + 1 :]]))
        with pytest.raises(DataError, match=rf"{number}\.txt, line {at + 1}: "):
            embed_files([Source(str(path))], tmp_path / f"stopped-{number}", encoder, **HOW)
        folder = tmp_path / f"kept-{number}"
        done = embed_files([Source(str(path))], folder, encoder, skip_bad=True, **HOW)
        assert (done["rows"], done["dead"]) == (24, 1)
        assert json.loads((folder / "dead-letters.jsonl").read_text())["row"] == at + 1
        assert read(folder)[0] == [f"{number}.txt:{i + 1}" for i in range(25) if i != at]


def test_parts_and_moments_of_a_command_are_fitted(tiny_model, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:40]))
    of_model = f"--model {tiny_model} --pooling mean --max-length 32"
    embed = f"embed a.txt {of_model} --part-rows 16 --float16 -o parts --moments m.safetensors"
    assert [cli.main(words.split()) for words in (embed, "fit parts -k 4 -o small/")] == [0, 0]
    assert (Moments.load("m.safetensors").n, Encoder.from_pretrained("small").dimension) == (40, 4)
    schema = pq.read_schema("parts/part-000000.parquet")
    assert (str(schema.field("vector").type.value_type), schema.field("vector").type.list_size) == ("halffloat", 32)
    assert json.loads(schema.metadata[b"jaxwhiten"])["space"]["fingerprint"] == encoder.view.fingerprint


def changed(**values):
    """Writes an object of JSON with other values; those of None are left out."""

    def write(path):
        told = json.loads(path.read_text()) | values
        path.write_text(json.dumps({name: value for name, value in told.items() if name not in values or value}))

    return write


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def without_metadata(path):
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


DAMAGE = {
    "plan: cut": ("plan.json", cut),
    "plan: no space": ("plan.json", changed(space=None)),
    "plan: inputs a number": ("plan.json", changed(inputs=3)),
    "plan: a space that is no object": ("plan.json", changed(space=["mean"])),
    "manifest: cut": ("manifest.json", cut),
    "manifest: no parts": ("manifest.json", changed(parts=None)),
    "record: no checksum": ("part-000000.json", changed(sha256=None)),
    "record: a part that is no number": ("part-000000.json", changed(part="../0")),
    "record: a position of one number": ("part-000000.json", changed(end=[3])),
    "shard: no metadata": ("part-000000.parquet", without_metadata),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_header_is_refused(folder, damage):
    name, damaged = DAMAGE[damage]
    damaged(folder / name)
    errors = 0
    for use in ("all", "moments", "finish"):
        try:
            getattr(Parts(folder), use)()
        except FormatError:
            errors += 1
    assert errors
