"""Parts of a corpus: resumed at any point they are those of an unbroken run, and nothing is lost in silence."""

import functools
import json
import operator
import os
import random
import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, Moments
from jaxwhiten.commands import cli
from jaxwhiten.datasets import chunks
from jaxwhiten.errors import DataError, FormatError, MismatchError, OutputError
from jaxwhiten.runners import Parts, Source, embed_files, parts
from tests.conftest import own_cache
from tests.sentences import generated

pytest.importorskip("pyarrow", reason="the extra data")
pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
TEXTS = generated(103)
HOW = {"part_rows": 10, "show_progress": False}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    import pyarrow as pa
    import pyarrow.parquet as pq

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


class Killed(BaseException):
    """Ends a run at once, as a signal does."""


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_ends_equal_to_an_unbroken_one(encoder, sources, whole, tmp_path, monkeypatch):
    ids, vectors = read(whole[0])
    assert ids[:2] == ["a.txt:1", "a.txt:2"]
    assert ids[40:42] == ["k0", "k1"]
    assert ids[75] == "c.parquet:1"
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-6)
    alone, moments = Moments().update(vectors.astype(np.float64)), Parts(whole[0]).moments()
    np.testing.assert_allclose(moments.M2, alone.M2, rtol=1e-12, atol=1e-12 * np.abs(alone.M2).max())

    rng, real, kills = random.Random(0), parts.io.atomic_path, 0

    def atomic_path(path):
        if rng.random() < 0.3:
            raise Killed if rng.random() < 0.9 else OutputError(f"{path}: no space left")
        return real(path)

    for module in (parts.io, parts.io.files, parts.io.tensors):
        monkeypatch.setattr(module, "atomic_path", atomic_path)
    for _ in range(200):
        try:
            embed_files(sources, tmp_path / "broken", encoder, **HOW)
            break
        except (Killed, OutputError):
            kills += 1
    monkeypatch.undo()
    assert kills > 3
    assert embed_files(sources, tmp_path / "broken", encoder, **HOW) == whole[1]
    again = read(tmp_path / "broken")
    assert again[0] == ids
    assert np.array_equal(again[1], vectors)
    assert Parts(tmp_path / "broken").moments().n == 103


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
    """Also if the totals are gone: each part records what it was made of."""
    if not recorded:
        (folder / "manifest.json").unlink()
    monkeypatch.setattr(chunks, "rows" if recorded else "numbered_lines", None)
    assert embed_files(sources, folder, encoder, **HOW) == whole[1]


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "part-000003.json", "part-000003.parquet"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_parts_are_regular_files_of_their_folder(folder, tmp_path, name, kind):
    (folder / name).rename(tmp_path / "elsewhere")
    if kind == "link":
        (folder / name).symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(folder / name) if kind == "pipe" else (folder / name).mkdir()
    with pytest.raises(FormatError):
        read(folder)


def test_a_plan_names_no_file_that_is_read(folder, monkeypatch):
    monkeypatch.setattr(Source, "stat", None)
    assert len(read(folder)[0]) == 103
    (folder / "part-000002.parquet").unlink()
    with pytest.raises(FormatError, match="not finished"):
        read(folder)


@pytest.mark.parametrize("at", [0, 10, 24])
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


def test_the_commands(tiny_model, encoder, sources, tmp_path, monkeypatch, capsys):
    shutil.copy(sources[0].path, tmp_path)
    monkeypatch.setenv("JAXWHITEN_CACHE_DIR", own_cache(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(command, code=0):
        assert cli.main(command.split()) == code
        return "".join(capsys.readouterr())

    embed = (
        f"embed *.txt --model {tiny_model} --pooling mean --max-length 32 --part-rows 16 --float16 -o parts --moments"
    )
    assert "40 32-dimensional vectors, 64 bytes each" in run(f"{embed} m.safetensors")
    assert Moments.load("m.safetensors").n == 40
    schema = pytest.importorskip("pyarrow.parquet").read_schema("parts/part-000000.parquet")
    assert (str(schema.field("vector").type.value_type), schema.field("vector").type.list_size) == ("halffloat", 32)
    assert json.loads(schema.metadata[b"jaxwhiten"])["space"]["fingerprint"] == encoder.view.fingerprint
    run("fit parts -k 4 -o whitened/")
    assert Encoder.from_pretrained("whitened").dimension == 4
    assert "differs in skip_bad" in run(f"{embed} n.safetensors --skip-bad", 2)
    run("index parts -o index")
    assert cli.main(["search", "index", TEXTS[3], "-k", "1"]) == 0
    assert "a.txt:4" in capsys.readouterr().out


def test_codes_are_fixed_size_bytes_that_know_their_code(encoder, tmp_path):
    from jaxwhiten.codes import SpectrumCode

    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    vectors = encoder.encode(TEXTS)
    coded = encoder.with_code(SpectrumCode(bytes=4).fit(vectors))
    embed_files([Source(str(tmp_path / "a.txt"))], tmp_path / "parts", coded, **HOW)
    (_, first), *_ = Parts(tmp_path / "parts").blocks()
    assert first.shape == (10, 4)
    np.testing.assert_allclose(first.decode(), coded.encode(TEXTS[:10]).decode(), rtol=1e-5)
