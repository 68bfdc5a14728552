"""The builders end to end: loopback archive, prepared records, pairs. TensorFlow is never imported."""

import subprocess
import sys

import pytest

from eval.data import STS_TASKS, load_nli, load_sts
from tests.eval.data.conftest import make_allnli, make_tar

pytest.importorskip("tensorflow_datasets")
pytest.importorskip("array_record")


# tensorflow-datasets leaves files of its own open until they are collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def served(serve, tiny_files, no_data, monkeypatch) -> list[str]:
    """The tiny archive and AllNLI on loopback; the list of what was asked for."""
    files = {f"./{name}": data for name, data in tiny_files.items()} | {"MR/rt-polarity.pos": b"unrelated"}
    url, asked = serve({"/senteval.tar": make_tar(files), "/AllNLI.tsv.gz": make_allnli()})
    monkeypatch.setenv("JAXWHITEN_SENTEVAL_URL", f"{url}/senteval.tar")
    monkeypatch.setenv("JAXWHITEN_ALLNLI_URL", f"{url}/AllNLI.tsv.gz")
    return asked


def same(first, second) -> bool:
    return first.splits.keys() == second.splits.keys() and all(
        (a.sentence1, a.sentence2, a.score.tolist(), a.subset) == (b.sentence1, b.sentence2, b.score.tolist(), b.subset)
        for a, b in zip(first.splits.values(), second.splits.values(), strict=True)
    )


def test_every_task_is_downloaded_once_and_equals_the_folder(served, tiny_folder):
    for task in STS_TASKS:
        assert same(load_sts(task), load_sts(task, tiny_folder))
    assert served == ["/senteval.tar"]
    assert same(load_sts("STS12"), load_sts("STS12", tiny_folder))
    assert served == ["/senteval.tar"]


def test_nli_is_downloaded_once(served):
    rows = load_nli()
    assert len(rows) == 9
    assert sum(rows.sources[0].dropped.values()) == 3
    assert len(load_nli()) == 9
    assert served == ["/AllNLI.tsv.gz"]


def test_tensorflow_is_not_imported(real_data):
    """In a fresh interpreter; and tensorflow-datasets only once it is needed."""
    code = f"""
import sys
from eval.data import load_sts
load_sts("STS-B", {str(real_data)!r})
assert not {{"tensorflow_datasets", "requests"}} & set(sys.modules)
from eval.data import builders
assert "tensorflow" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
