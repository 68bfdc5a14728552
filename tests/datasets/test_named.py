"""Retrieval data by name: Quora from a local folder, downloaded from loopback, or neither; MRPC from a folder."""

import gzip

import pytest

from jaxwhiten.datasets import load_retrieval, named
from jaxwhiten.datasets.named import QUORA_FILE
from jaxwhiten.errors import DataError, DataNotFoundError

TEXT = (
    b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhat is it?\tWhat's it?\t1\n1\t3\t4\tA?\tB?\t0\nx\n"
)


@pytest.mark.parametrize("place", ["", "quora", "downstream/Quora"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_local_file_is_read(place, packed, tmp_path, no_data, monkeypatch):
    folder = tmp_path / "data" / place
    folder.mkdir(parents=True)
    (folder / (QUORA_FILE + ".gz" * packed)).write_bytes(gzip.compress(TEXT) if packed else TEXT)
    data = load_retrieval("quora", tmp_path / "data")
    assert data.name == "quora"
    assert data.documents == ["What's it?", "B?"]
    assert data.counts["malformed_rows"] == 1
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path / "data"))
    assert load_retrieval("quora").documents == data.documents


def test_it_is_downloaded_once(serve, no_data, monkeypatch):
    address, asked = serve({"/q.tsv": TEXT})
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", f"{address}/q.tsv")
    first, second = load_retrieval("quora"), load_retrieval("quora")
    assert first.documents == second.documents == ["What's it?", "B?"]
    assert asked == ["/q.tsv"]


def test_a_data_folder_without_it_does_not_stop_the_download(serve, no_data, tmp_path, monkeypatch):
    address, _ = serve({"/q.tsv": TEXT})
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", f"{address}/q.tsv")
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    assert len(load_retrieval("quora").queries) == 2


def test_without_folder_and_network_both_remedies_are_named(no_data, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", "http://127.0.0.1:9/q.tsv")
    with pytest.raises(DataNotFoundError, match=r"data_dir.* or connect"):
        load_retrieval("quora")
    with pytest.raises(DataNotFoundError, match=f"no {QUORA_FILE} in it"):
        load_retrieval("quora", tmp_path)


HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
ROWS = ['1\t1\t2\tHe said " no .\tHe denied it .', "0\t3\t4\tRain fell .\tStocks rose .", "1\t1\t5\tHe said\tNo"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(named, "MRPC_FILES", dict.fromkeys(named.MRPC_FILES, len(ROWS)))
    target = tmp_path / "downstream" / "MRPC"
    target.mkdir(parents=True)
    for number, name in enumerate(named.MRPC_FILES):
        text = "\r\n".join([HEADER, *(row.replace("\t1\t", f"\t1{number}\t") for row in ROWS)]) + "\r\n"
        (target / name).write_text(text, encoding="utf-8", newline="")
    return tmp_path


def test_pairs_become_queries_and_documents(folder):
    data = load_retrieval("mrpc", folder)
    assert data.name == "mrpc"
    assert data.queries[0] == 'He said " no .'
    assert data.query_ids == ["10", "3", "11"]
    assert data.document_ids == ["2", "4", "5"]
    assert data.gold.indptr.tolist() == [0, 2, 2, 4]
    assert data.counts["queries_without_gold"] == 1
    assert load_retrieval("mrpc", folder / "downstream" / "MRPC").queries == data.queries


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("0\t3", "x\t3"), "line 3: not a row"),
        (lambda text: text.replace("\tStocks", " Stocks"), "line 3: not a row"),
        (lambda text: text[: text.rindex("1\t11")], "2 rows, expected 3"),
        (lambda text: text.replace("Quality", "Score"), "line 1: not the header"),
        (lambda text: "", "line 1: not the header"),
    ],
)
def test_damage_is_named_by_line(folder, change, message):
    path = folder / "downstream/MRPC/msr_paraphrase_test.txt"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_retrieval("mrpc", folder)


def test_without_a_folder_the_remedies_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("JAXWHITEN_DATA_DIR", raising=False)
    for data_dir in (None, tmp_path):
        with pytest.raises(DataNotFoundError, match=r"JAXWHITEN_DATA_DIR.*pydocs"):
            load_retrieval("mrpc", data_dir)


def test_the_real_corpus(real_data):
    data = load_retrieval("mrpc", real_data)
    assert data.counts["rows"] == 5801
    assert data.counts["queries_without_gold"] == 1901
    assert data.counts["rows_with_another_text_of_a_document"] == 0
