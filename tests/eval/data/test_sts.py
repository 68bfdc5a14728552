"""STS tasks from a SentEval-style folder."""

import pytest

from eval.data import STS_TASKS, load_sts, protocol
from jaxwhiten.errors import DataError

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


@pytest.mark.parametrize("inside", ["", "downstream", "downstream/STS"])
@pytest.mark.parametrize("task", STS_TASKS)
def test_every_place_of_the_folder(tiny_folder, task, inside):
    loaded = load_sts(task, tiny_folder / inside)
    spec = protocol.TASK_SPECS[task]
    for split, pairs in loaded.splits.items():
        assert len(pairs) == sum(count.scored for count in spec.counts[split].values())
    assert loaded.name == task


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
