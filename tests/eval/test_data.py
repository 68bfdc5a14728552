"""Data of the papers, tiny and in the layout of the real: read from folders, downloaded from loopback, refused."""

import dataclasses
import functools
import gzip
import http.server
import io
import json
import tarfile
import threading

import numpy as np
import pytest

from eval.data import STS_TASKS, load_nli, load_sts, mrpc, protocol, read_quora, remote
from eval.data.protocol import Count
from eval.data.quora import FILE
from eval.pydocs import load_pydocs
from eval.searches import load_search
from jaxwhiten.errors import DataError

ROWS = 6


def shrink(spec):
    """The same task with `ROWS` rows a file; half of them scored where the real task has unscored pairs."""
    counts = {
        split: {
            name: Count(ROWS, ROWS if count.scored == count.total else ROWS // 2) for name, count in subsets.items()
        }
        for split, subsets in spec.counts.items()
    }
    return dataclasses.replace(spec, counts=counts)


def task_files(spec):
    """The files of one tiny task by path below `downstream`."""
    files = {}
    for split, subsets in spec.counts.items():
        for name, count in subsets.items():
            scores = [round(spec.low + (spec.high - spec.low) * i / ROWS, 3) for i in range(ROWS)]
            pairs = [(f"“{name} {split}” left {i}", f"{name} {split} right {i}") for i in range(ROWS)]
            rows = [(*pair, score) for pair, score in zip(pairs, scores, strict=True)]
            if spec.layout == "semeval":
                all_scored = count.scored == count.total
                gold = [score if all_scored or i % 2 else "" for i, score in enumerate(scores)]
                files[f"STS.input.{name}.txt"] = "".join(f"{a}\t{b}\n" for a, b in pairs)
                files[f"STS.gs.{name}.txt"] = "".join(f"{score}\n" for score in gold)
            elif spec.layout == "stsb":
                lines = [f'genre\tfile\t2012\t{i}\t{score}\t"{a}\t{b}\n' for i, (a, b, score) in enumerate(rows)]
                files[spec.files[split]] = "".join(lines)
            else:
                header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
                lines = [f"{i}\t{a}\t{b}\t{score}\tNEUTRAL\r\n" for i, (a, b, score) in enumerate(rows)]
                files[spec.files[split]] = header + "".join(lines)
    return {f"{spec.folder}/{name}": text.encode() for name, text in files.items()}


@pytest.fixture
def tiny_files(monkeypatch):
    """Every file of every tiny task by path below `downstream`; the expected counts are theirs."""
    specs = {name: shrink(spec) for name, spec in protocol.TASK_SPECS.items()}
    monkeypatch.setattr(protocol, "TASK_SPECS", specs)
    return {name: data for spec in specs.values() for name, data in task_files(spec).items()}


@pytest.fixture
def tiny_folder(tiny_files, tmp_path):
    """A SentEval-style folder of the tiny tasks."""
    for name, data in tiny_files.items():
        path = tmp_path / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def make_tar(files, *members):
    """An uncompressed tar archive of some files; `members` are added first, without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            tar.addfile(member)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """An empty cache, no data folder, and a folder served on loopback for downloads; the paths that are asked for."""
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.delenv("JAXWHITEN_DATA_DIR", raising=False)
        monkeypatch.setenv("JAXWHITEN_CACHE_DIR", str(tmp_path / "cache"))
        for name, file in (("SENTEVAL", "senteval.tar"), ("ALLNLI", "AllNLI.tsv.gz")):
            monkeypatch.setenv(f"JAXWHITEN_{name}_URL", f"http://127.0.0.1:{server.server_address[1]}/{file}")
        yield folder, asked
        server.shutdown()
        thread.join()


# --- STS --------------------------------------------------------------------------------------------------------------

# Section "STS protocol" of the published papers.
SCORED = {
    "STS12": {"test": 3108},
    "STS13": {"test": 1500},
    "STS14": {"test": 3750},
    "STS15": {"test": 3000},
    "STS16": {"test": 1186},
    "STS-B": {"train": 5749, "dev": 1500, "test": 1379},
    "SICK-R": {"train": 4500, "dev": 500, "test": 4927},
}


def test_the_real_tasks_have_the_scored_pairs_of_the_papers(real_data):
    loaded = {task: load_sts(task, real_data).splits for task in STS_TASKS}
    assert {task: {name: len(pairs) for name, pairs in splits.items()} for task, splits in loaded.items()} == SCORED
    searches = load_search("mrpc", real_data)
    assert len(searches.queries) - len(searches.with_gold().queries) == 1901


@pytest.mark.parametrize("inside", ["", "downstream", "downstream/STS"])
def test_every_place_of_the_folder(tiny_folder, inside):
    for task in STS_TASKS:
        counts = protocol.TASK_SPECS[task].counts
        for split, pairs in load_sts(task, tiny_folder / inside).splits.items():
            assert len(pairs) == sum(count.scored for count in counts[split].values())


INPUT, GOLD = "STS/STS12-en-test/STS.input.MSRvid.txt", "STS/STS12-en-test/STS.gs.MSRvid.txt"
STSB, SICK = "STS/STSBenchmark/sts-dev.csv", "SICK/SICK_trial.txt"
FAULTS = {
    "input lost its last line": ("STS12", INPUT, lambda b: b[: b[:-1].rindex(b"\n") + 1], "5 lines"),
    "gold nan": ("STS12", GOLD, lambda b: b.replace(b"2.5", b"nan"), "line 4: .*'nan'"),
    "gold too high": ("STS12", GOLD, lambda b: b.replace(b"2.5", b"5.1"), "line 4: .*5.1"),
    "benchmark truncated": ("STS-B", STSB, lambda b: b[: b[:-1].rindex(b"\n") + 1], "line 5: .*expected 6"),
    "sick without header": ("SICK-R", SICK, lambda b: b.partition(b"\n")[2], "line 1: no column"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files_are_refused_with_file_and_line(tiny_folder, fault):
    task, name, change, message = FAULTS[fault]
    path = tiny_folder / "downstream" / name
    data = path.read_bytes()
    assert change(data) != data
    path.write_bytes(change(data))
    with pytest.raises(DataError, match=message) as caught:
        load_sts(task, tiny_folder)
    assert str(path.parent) in str(caught.value)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # files of tensorflow-datasets' own
def test_every_task_is_downloaded_once_and_equals_the_folder(served, tiny_files, tiny_folder):
    pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    folder, asked = served
    (folder / "senteval.tar").write_bytes(make_tar({f"./{name}": data for name, data in tiny_files.items()}))
    for task in [*STS_TASKS, "STS12"]:
        found, expected = load_sts(task).splits, load_sts(task, tiny_folder).splits
        assert found.keys() == expected.keys()
        for a, b in zip(found.values(), expected.values(), strict=True):
            assert (a.sentence1, a.sentence2, a.subset) == (b.sentence1, b.sentence2, b.subset)
            assert a.score.tolist() == b.score.tolist()
    assert asked == ["/senteval.tar"]


# --- archives from strangers ------------------------------------------------------------------------------------------

WANTED = ["STS/a.txt", "SICK/b.txt"]
GOOD = {"STS/a.txt": b"a", "SICK/b.txt": b"b"}


def unpack(tmp_path, data):
    (tmp_path / "a.tar").write_bytes(data)
    out = tmp_path / "deep" / "out"
    remote.extract(tmp_path / "a.tar", out, WANTED)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "a.tar"]
    assert all(path.is_relative_to(out) and not path.is_symlink() for path in files)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("prefix", ["", "./", "SentEval/data/downstream/", "/", "../../", "x/../"])
def test_wanted_files_come_out_wherever_they_lie(tmp_path, prefix):
    """The place in the archive never becomes the place on disk."""
    files = {prefix + name: data for name, data in GOOD.items()} | {prefix + "STS/other.txt": b"no", "../evil": b"no"}
    link = tarfile.TarInfo(prefix + WANTED[0])
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert unpack(tmp_path, make_tar(files, link)) == GOOD


@pytest.mark.parametrize(("limit", "message"), [("MAX_FILE", "has 11 bytes"), ("MAX_MEMBERS", "3 members")])
def test_bombs_are_refused(tmp_path, monkeypatch, limit, message):
    monkeypatch.setattr(remote, limit, 3)
    with pytest.raises(DataError, match=message):
        unpack(tmp_path, make_tar({"x": b"", "STS/a.txt": b"x" * 11, "y": b"", "SICK/b.txt": b""}))


# --- NLI --------------------------------------------------------------------------------------------------------------


def test_all_nli_is_downloaded_once(served):
    folder, asked = served
    lines = ["split\tdataset\tfilename\tsentence1\tsentence2\tlabel"]
    for split in ("train", "dev", "test"):
        for i, label in enumerate(("entailment", "neutral", "contradiction", "-")):
            lines.append(f'{split}\tSNLI\tsnli_1.0_{split}\tA "premise {i}\tA hypothesis of {split} {i}\t{label}')
    (folder / "AllNLI.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for _ in range(2):
        loaded = load_nli()
        assert (loaded.label.dtype, loaded.label.tolist()) == (np.int8, [0, 1, 2] * 3)
        assert (loaded.premise[0], loaded.hypothesis[3]) == ('A "premise 0', "A hypothesis of dev 0")
        assert [(source.name, source.dropped) for source in loaded.sources] == [
            ("AllNLI", {"without an agreed label": 3})
        ]
    assert asked == ["/AllNLI.tsv.gz"]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".txt"])
def test_official_folders_of_nli(tmp_path, suffix):
    """The files of the SNLI and MultiNLI archives, extra columns and ragged rows included."""
    labels = list(enumerate(("entailment", "neutral", "contradiction", "-")))
    if suffix == ".txt":
        lines = ["gold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1\tlabel2"]
        lines += [f"{label}\t(ROOT)\tp{i} é\th{i}\tx\t" for i, label in labels]
    else:
        rows = [{"gold_label": label, "sentence1": f"p{i} é", "sentence2": f"h{i}", "more": [i]} for i, label in labels]
        lines = map(json.dumps, rows)
    data = "\n".join(lines).encode()
    for corpus in ("snli_1.0", "multinli_1.0"):
        (tmp_path / corpus).mkdir()
        for split in ("train", "dev"):
            file = tmp_path / corpus / f"{corpus}_{split}{suffix}"
            file.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    (tmp_path / "snli_1.0" / "README.txt").write_text("not data")
    loaded = load_nli(tmp_path)
    assert [(source.rows, sum(source.dropped.values())) for source in loaded.sources] == [(3, 1)] * 4
    assert len(loaded) == 12
    assert loaded.premise[0] == "p0 é"


# --- searches ---------------------------------------------------------------------------------------------------------

QUORA = (
    b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhat is it?\tWhat's it?\t1\n1\t3\t4\tA?\tB?\t0\nx\n"
)


@pytest.mark.parametrize(("subfolder", "packed"), [("", False), ("quora", True), ("downstream/Quora", False)])
def test_a_local_file_of_quora_is_read(subfolder, packed, tmp_path, monkeypatch):
    folder = tmp_path / subfolder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (FILE + ".gz" * packed)).write_bytes(gzip.compress(QUORA) if packed else QUORA)
    data = load_search("quora", str(tmp_path))
    assert (data.name, data.documents, data.counts["malformed_rows"]) == ("quora", ["What's it?", "B?"], 1)
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    assert load_search("quora", None).documents == data.documents


def test_question_pairs_become_the_search_of_the_paper(tmp_path):
    rows = [
        "0\t1\t2\tHow are you?\tHow do you do?\t1",
        "1\t3\t4\tWhat is JAX?\tWhat is a jay?\t0",
        "2\t1\t4\tHow are you?\tWhat is a jay?\t1",
        "3\t1\t2\tHow are you?\tHow do you do?\t1",
        "4\t2\t1\tHow do you do?\tHow are you?\t1",
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join([QUORA.decode().partition("\n")[0], *rows]))
    data = read_quora(tmp_path / "pairs.tsv")
    assert data.queries == ["How are you?", "What is JAX?", "How do you do?"]
    assert data.documents == ["How do you do?", "What is a jay?", "How are you?"]
    assert (data.gold.indptr.tolist(), data.gold.ids.tolist()) == ([0, 2, 2, 3], [0, 1, 2])
    assert len(data.with_gold().queries) == 2


def test_pairs_of_mrpc_become_queries_and_documents(tmp_path, monkeypatch):
    rows = ['1\t1\t2\tHe said " no .\tHe denied it .', "0\t3\t4\tRain fell .\tStocks rose .", "1\t1\t5\tHe said\tNo"]
    monkeypatch.setattr(mrpc, "MRPC_FILES", dict.fromkeys(mrpc.MRPC_FILES, len(rows)))
    target = tmp_path / "downstream" / "MRPC"
    target.mkdir(parents=True)
    for number, name in enumerate(mrpc.MRPC_FILES):
        lines = [
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            *(row.replace("\t1\t", f"\t1{number}\t") for row in rows),
        ]
        (target / name).write_text("\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    data = load_search("mrpc", tmp_path)
    assert (data.name, data.queries[0]) == ("mrpc", 'He said " no .')
    assert data.gold.indptr.tolist() == [0, 2, 2, 4]
    assert load_search("mrpc", target).queries == data.queries


def test_docstrings_are_a_search_and_their_modules_never_run(tmp_path):
    files = {
        "a.py": '"""First module by name. It comes before the others."""\n',
        "b/danger.py": '"""Raises the alarm loudly. Nobody should ever import this module."""\nraise SystemExit(1)\n'
        'class A:\n    """Holds three small values. Each of them is a number."""\n'
        '    def f(self):\n        """Only one sentence stands here."""\n',
        "broken.py": "def (:\n",
        "latin.py": "# -*- coding: latin-1 -*-\n'''Café culture is explained. Three more words.'''\n",
        "escape.py": "'''Has a bad \\d escape inside. Three more words.'''\n",
        "tests/t.py": '"""Not a part of this. It is never read."""\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="latin-1")
    data = load_pydocs(tmp_path)
    firsts = ["First module by name.", "Has a bad \\d escape inside.", "Café culture is explained."]
    assert data.queries == [*firsts, "Raises the alarm loudly.", "Holds three small values."]
    assert data.documents[data.gold.ids[-1]] == "Each of them is a number."
    assert (data.counts["docstrings"], data.counts["modules"]) == (6, 5)
