"""STS tasks from a SentEval-style folder."""

import pytest

from eval.data import STS_TASKS, load_sts, protocol
from jaxwhiten.errors import DataError

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
