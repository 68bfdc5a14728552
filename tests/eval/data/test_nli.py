"""NLI rows from local folders."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from eval.data.nli import load_nli
from jaxwhiten.errors import DataError, InputError
from tests.eval.data.conftest import make_allnli

HEADER = "premise\thypothesis\tlabel"
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
    assert load_nli(tmp_path, splits="test").hypothesis == [f"A hypothesis of test {i}" for i in range(3)]


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
    assert len(load_nli(tmp_path, splits=["train"])) == 6


def test_integer_labels_follow_the_hub(tmp_path):
    lines = [json.dumps({"premise": f"p{i}", "hypothesis": "h", "label": i}) for i in (0, 1, 2, -1)]
    write(tmp_path / "nli" / "train.jsonl", *lines)
    loaded = load_nli(tmp_path)
    assert loaded.label.tolist() == [0, 1, 2]
    assert loaded.sources[0].dropped == {"without an agreed label": 1}


def test_two_way_rows_have_no_class_of_three(tmp_path):
    write(tmp_path / "nli" / "rte.tsv", HEADER, *rows("r", ["entailment", "not_entailment"]))
    dropped, complete = load_nli(tmp_path), load_nli(tmp_path, two_way="keep")
    assert dropped.label.tolist() == [0]
    assert dropped.sources[0].dropped == {"with a two-way label": 1}
    assert complete.label.tolist() == [0, -1]
    assert complete.premise == ["r premise 0", "r premise 1"]


def test_contained_sources_are_read_once(tmp_path):
    folder = tmp_path / "nli" / "cad"
    write(folder / "original_train.tsv", HEADER, *rows("o"))
    write(folder / "all_combined_train.tsv", HEADER, *rows("o"), *rows("c"))
    write(folder / "original_dev.tsv", HEADER, *rows("d"))
    loaded = load_nli(tmp_path)
    assert [source.name for source in loaded.sources] == ["cad/all_combined_train", "cad/original_dev"]
    assert dict(loaded.left_out) == {"cad/original_train": "its rows are in cad/all_combined_train"}
    assert len(load_nli(tmp_path, sources="cad/original_train")) == 3
    with pytest.raises(InputError, match="the second contains the first"):
        load_nli(tmp_path, sources=["cad/original_train", "cad/all_combined_train"])


def test_overlap_lines_are_left_out_on_request(tmp_path):
    """Line numbers count from 0 and the header is line 0: number 2 is the second row."""
    path = write(tmp_path / "nli" / "x_train.tsv.gz", HEADER, *rows("x"))
    write(path.with_name("x_train.overlap_lines.txt"), "2")
    assert len(load_nli(tmp_path)) == 3
    loaded = load_nli(tmp_path, exclude_overlap=True)
    assert loaded.premise == ["x premise 0", "x premise 2"]
    assert loaded.sources[0].dropped == {"overlapping an evaluation set": 1}


def test_bad_rows_are_refused_or_counted(tmp_path):
    path = tmp_path / "nli" / "x.tsv"
    write(path, HEADER, *rows("x"), "only one column", "p\th\tmaybe", "\th\tneutral")
    with pytest.raises(DataError, match=r"x.tsv, line 5: expected 3 columns"):
        load_nli(tmp_path)
    loaded = load_nli(tmp_path, skip_bad_rows=True)
    assert len(loaded) == 3
    assert loaded.sources[0].dropped == {"invalid row": 1, "unknown label": 1, "empty sentence": 1}


def test_real_rows(real_data: Path):
    loaded = load_nli(real_data, two_way="keep")
    counts = {source.name: source.rows for source in loaded.sources}
    assert counts["snli_dev_test"] == 19_666
    assert counts["cad_snli/all_combined_train"] == 8_330
    assert counts["rte123/rte123"] == 4_167
    assert not any("original" in name for name in counts)
    assert len(loaded) == sum(counts.values())
    train = load_nli(real_data, splits=["train"], exclude_overlap=True)
    assert {source.name for source in train.sources if source.rows} == {"cad_snli/all_combined_train"}
    assert len(train) == 8_330 - 204
