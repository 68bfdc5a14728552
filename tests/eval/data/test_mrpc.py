"""MRPC from a folder, as pairs and as a search."""

import pytest

from eval.data import mrpc
from eval.searches import load_search

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
ROWS = ['1\t1\t2\tHe said " no .\tHe denied it .', "0\t3\t4\tRain fell .\tStocks rose .", "1\t1\t5\tHe said\tNo"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(mrpc, "MRPC_FILES", dict.fromkeys(mrpc.MRPC_FILES, len(ROWS)))
    target = tmp_path / "downstream" / "MRPC"
    target.mkdir(parents=True)
    for number, name in enumerate(mrpc.MRPC_FILES):
        text = "\r\n".join([HEADER, *(row.replace("\t1\t", f"\t1{number}\t") for row in ROWS)]) + "\r\n"
        (target / name).write_text(text, encoding="utf-8", newline="")
    return tmp_path


def test_pairs_become_queries_and_documents(folder):
    data = load_search("mrpc", folder)
    assert data.name == "mrpc"
    assert data.queries[0] == 'He said " no .'
    assert data.gold.indptr.tolist() == [0, 2, 2, 4]
    assert len(data.queries) - len(data.with_gold().queries) == 1
    assert load_search("mrpc", folder / "downstream" / "MRPC").queries == data.queries


def test_the_real_corpus(real_data):
    data = load_search("mrpc", real_data)
    assert len(data.queries) - len(data.with_gold().queries) == 1901
