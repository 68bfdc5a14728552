"""STS tasks from a SentEval-style folder."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data import STS_TASKS, load_sts, protocol
from eval.data.senteval import read_task
from jaxwhiten.errors import DataError, DataNotFoundError
from tests.eval.data.conftest import FUZZ, task_files

# Section "STS protocol" of the published papers: scored pairs, and all pairs where some are unscored.
SCORED = {
    "STS12": {"test": 3108},
    "STS13": {"test": 1500},
    "STS14": {"test": 3750},
    "STS15": {"test": 3000},
    "STS16": {"test": 1186},
    "STS-B": {"train": 5749, "dev": 1500, "test": 1379},
    "SICK-R": {"train": 4500, "dev": 500, "test": 4927},
}
TOTAL = {"STS15": 8500, "STS16": 9183}
SUBSETS = {
    "STS12": {"MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"},
    "STS13": {"FNWN", "headlines", "OnWN"},
    "STS14": {"deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"},
    "STS15": {"answers-forums", "answers-students", "belief", "headlines", "images"},
    "STS16": {"answer-answer", "headlines", "plagiarism", "postediting", "question-question"},
    "STS-B": {"STS-B"},
    "SICK-R": {"SICK-R"},
}


def test_counts_and_subsets_are_those_of_the_protocol():
    assert tuple(SCORED) == STS_TASKS
    for name, spec in protocol.TASK_SPECS.items():
        for split, counts in spec.counts.items():
            assert set(counts) == SUBSETS[name]
            assert sum(count.scored for count in counts.values()) == SCORED[name][split]
            assert sum(count.total for count in counts.values()) == TOTAL.get(name, SCORED[name][split])


@pytest.mark.parametrize("task", STS_TASKS)
def test_real_data(real_data: Path, task):
    loaded = load_sts(task, real_data)
    assert {split: len(pairs) for split, pairs in loaded.splits.items()} == SCORED[task]
    low = 1 if task == "SICK-R" else 0
    for pairs in loaded.splits.values():
        assert set(pairs.subset) == SUBSETS[task]
        assert len(pairs.sentence1) == len(pairs.sentence2) == len(pairs.score) == len(pairs.subset)
        assert pairs.score.dtype == np.float64
        assert low <= pairs.score.min() < pairs.score.max() <= 5
        assert all(pairs.sentence1)
        assert all(pairs.sentence2)


def test_real_rows_are_not_shifted(real_data: Path):
    """First and last pairs as the files show them."""
    sts12 = load_sts("STS12", real_data).splits["test"]
    assert (sts12.sentence1[750], sts12.sentence2[750], sts12.score[750]) == (
        "A man with a hard hat is dancing.",
        "A man wearing a hard hat is dancing.",
        5.0,
    )
    stsb = load_sts("STS-B", real_data).splits["dev"]
    assert (stsb.sentence1[1], stsb.sentence2[1], stsb.score[1]) == (
        "A young child is riding a horse.",
        "A child is riding a horse.",
        4.75,
    )
    sick = load_sts("SICK-R", real_data).splits["test"]
    assert sick.sentence1[0] == "There is no boy playing outdoors and there is no man smiling"
    assert sick.score[0] == 3.3


@pytest.mark.parametrize("inside", ["", "downstream", "downstream/STS"])
@pytest.mark.parametrize("task", STS_TASKS)
def test_every_place_of_the_folder(tiny_folder, task, inside):
    loaded = load_sts(task, tiny_folder / inside)
    spec = protocol.TASK_SPECS[task]
    for split, pairs in loaded.splits.items():
        assert len(pairs) == sum(count.scored for count in spec.counts[split].values())
    assert loaded.name == task


def test_unscored_pairs_are_left_out_in_step(tiny_folder):
    pairs = load_sts("STS15", tiny_folder).splits["test"]
    assert pairs.sentence1[:2] == ["“answers-forums test” left 1", "“answers-forums test” left 3"]
    assert pairs.sentence2[1] == "answers-forums test right 3"
    np.testing.assert_allclose(pairs.score[:3], [0.833, 2.5, 4.167])


def test_quotes_stay_in_the_sentence(tiny_folder):
    assert load_sts("STS-B", tiny_folder).splits["dev"].sentence1[0] == '"“STS-B dev” left 0'


def test_folder_without_the_task_names_both_remedies(tmp_path):
    with pytest.raises(
        DataNotFoundError, match=r"(?s)STS/STS12-en-test.*data_dir.*JAXWHITEN_DATA_DIR.*download the data"
    ):
        load_sts("STS12", tmp_path)


INPUT, GOLD = "STS/STS12-en-test/STS.input.MSRvid.txt", "STS/STS12-en-test/STS.gs.MSRvid.txt"
STSB, SICK = "STS/STSBenchmark/sts-dev.csv", "SICK/SICK_trial.txt"
FAULTS = {
    "input lost its last line": (
        "STS12",
        INPUT,
        lambda b: b[: b[:-1].rindex(b"\n") + 1],
        r"MSRvid.txt has 5 lines but",
    ),
    "cut in the middle of a line": (
        "STS12",
        INPUT,
        lambda b: b[: b.rindex(b"\t")],
        r"input.MSRvid.txt, line 6: 1 column",
    ),
    "gold empty": ("STS12", GOLD, lambda b: b.replace(b"2.5", b""), r"gs.MSRvid.txt, line 4: the gold score is empty"),
    "gold nan": ("STS12", GOLD, lambda b: b.replace(b"2.5", b"nan"), r"line 4: gold score 'nan' is not a number"),
    "gold too high": ("STS12", GOLD, lambda b: b.replace(b"2.5", b"5.1"), r"line 4: gold score 5.1 is outside 0 to 5"),
    "utf-16": ("STS12", INPUT, lambda b: b.decode().encode("utf-16"), r"input.MSRvid.txt, line 1: "),
    "too few scored": (
        "STS16",
        "STS/STS16-en-test/STS.gs.headlines.txt",
        lambda b: b.replace(b"2.5", b""),
        r"gs.headlines.txt, line 6: 2 gold scores in the file, expected 3",
    ),
    "benchmark truncated": (
        "STS-B",
        STSB,
        lambda b: b[: b[:-1].rindex(b"\n") + 1],
        r"sts-dev.csv, line 5: .*expected 6",
    ),
    "benchmark shifted column": ("STS-B", STSB, lambda b: b.replace(b"2012\t", b""), r"sts-dev.csv, line 1: 6 columns"),
    "sick without header": ("SICK-R", SICK, lambda b: b.partition(b"\n")[2], r"SICK_trial.txt, line 1: no column"),
    "sick below one": (
        "SICK-R",
        SICK,
        lambda b: b.replace(b"\t1.0\t", b"\t0.9\t"),
        r"line 2: gold score 0.9 is outside 1",
    ),
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


@pytest.mark.parametrize("task", ["STS16", "STS-B", "SICK-R"])
@FUZZ
@given(data=st.data())
def test_damaged_files_give_a_data_error_or_valid_rows(tmp_path, tiny_specs, task, data):
    """Bytes replaced, inserted and removed anywhere in one file of a task."""
    spec = tiny_specs[task]
    files = task_files(spec)
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content)))
        removed = data.draw(st.integers(0, 12))
        new = data.draw(
            st.sampled_from([b"", b"\n", b"\r\n", b"\t", b"\0", b'"', b"\xef\xbb\xbf", b"\xff", b"9", b"x" * 5000])
            | st.binary(max_size=12)
        )
        content[place : place + removed] = new
    for other, value in files.items():
        path = tmp_path / other
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
    (tmp_path / name).write_bytes(bytes(content))
    message = ""
    try:
        loaded = read_task(spec, tmp_path)
    except DataError as error:
        message = str(error)
    finally:
        (tmp_path / name).write_bytes(files[name])
    if not message:
        for split, counts in spec.counts.items():
            pairs = loaded.splits[split]
            assert len(pairs) == sum(count.scored for count in counts.values())
            assert ((pairs.score >= spec.low) & (pairs.score <= spec.high)).all()
            text = "".join(pairs.sentence1 + pairs.sentence2)
            assert not set(text) & {"\0", "\t", "\n"}
            assert text.encode()
    assert not message or spec.folder.rpartition("/")[2] in message
