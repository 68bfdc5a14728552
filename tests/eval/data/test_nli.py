"""NLI rows from local folders."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from eval.data.nli import load_nli
from tests.eval.data.conftest import make_allnli

NAMES = ("entailment", "neutral", "contradiction")


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows(tag: str, labels=NAMES) -> list[str]:
    return [f"{tag} premise {i}\t{tag} hypothesis {i}\t{label}" for i, label in enumerate(labels)]


def test_all_nli(tmp_path):
    (tmp_path / "AllNLI.tsv.gz").write_bytes(make_allnli())
    loaded = load_nli(tmp_path)
    assert loaded.label.dtype == np.int8
    assert loaded.label.tolist() == [0, 1, 2] * 3
    assert loaded.premise[0] == 'A "premise 0'
    assert loaded.hypothesis[3] == "A hypothesis of dev 0"
    assert [source.name for source in loaded.sources] == ["AllNLI"]
    assert loaded.sources[0].dropped == {"without an agreed label": 3}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".txt"])
def test_official_folders(tmp_path, suffix):
    """The files of the SNLI and MultiNLI archives, extra columns and ragged rows included."""
    for corpus in ("snli_1.0", "multinli_1.0"):
        for split in ("train", "dev"):
            path = tmp_path / corpus / f"{corpus}_{split}{suffix}"
            labels = [*NAMES, "-"]
            if "jsonl" in suffix:
                lines = [
                    json.dumps({"gold_label": l, "sentence1": f"p{i} é", "sentence2": f"h{i}", "annotator_labels": [l]})
                    for i, l in enumerate(labels)
                ]
            else:
                lines = ["gold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1\tlabel2"]
                lines += [f"{l}\t(ROOT)\tp{i} é\th{i}" + "\tx\t" for i, l in enumerate(labels)]
            write(path, *lines)
    write(tmp_path / "snli_1.0" / "README.txt", "not data")
    write(tmp_path / "__MACOSX" / "._snli_1.0_train.jsonl", "junk")
    loaded = load_nli(tmp_path)
    assert len(loaded) == 12
    assert [sum(source.dropped.values()) for source in loaded.sources] == [1] * 4
    assert loaded.premise[0] == "p0 é"
    assert [source.rows for source in loaded.sources] == [3] * 4
