"""Quora from a local folder, downloaded from loopback, or neither; its rows as a search, bad ones counted."""

import gzip

import pytest

from eval.data import read_quora
from eval.data.quora import FILE
from eval.searches import load_search

TEXT = (
    b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhat is it?\tWhat's it?\t1\n1\t3\t4\tA?\tB?\t0\nx\n"
)


@pytest.mark.parametrize("subfolder", ["", "quora", "downstream/Quora"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_local_file_is_read(subfolder, packed, tmp_path, no_data, monkeypatch):
    folder = tmp_path / "data" / subfolder
    folder.mkdir(parents=True)
    (folder / (FILE + ".gz" * packed)).write_bytes(gzip.compress(TEXT) if packed else TEXT)
    data = load_search("quora", str(tmp_path / "data"))
    assert data.name == "quora"
    assert data.documents == ["What's it?", "B?"]
    assert data.counts["malformed_rows"] == 1
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path / "data"))
    assert load_search("quora", None).documents == data.documents


def test_it_is_downloaded_once(serve, no_data, monkeypatch):
    address, requests = serve({"/q.tsv": TEXT})
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", f"{address}/q.tsv")
    first, second = load_search("quora", None), load_search("quora", None)
    assert first.documents == second.documents == ["What's it?", "B?"]
    assert requests == ["/q.tsv"]


HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def write(path, *lines, header=HEADER):
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def gold_of(data, query):
    number = data.queries.index(query)
    ids = data.gold.ids[data.gold.indptr[number] : data.gold.indptr[number + 1]]
    return [data.documents[i] for i in ids]


def test_the_papers_form(tmp_path):
    data = read_quora(
        write(
            tmp_path / "pairs.tsv",
            "0\t1\t2\tHow are you?\tHow do you do?\t1",
            "1\t3\t4\tWhat is JAX?\tWhat is a jay?\t0",
            "2\t1\t4\tHow are you?\tWhat is a jay?\t1",
            "3\t1\t2\tHow are you?\tHow do you do?\t1",
            "4\t2\t1\tHow do you do?\tHow are you?\t1",
        )
    )
    assert data.name == "pairs.tsv"
    assert data.queries == ["How are you?", "What is JAX?", "How do you do?"]
    assert data.documents == ["How do you do?", "What is a jay?", "How are you?"]
    found = [["How do you do?", "What is a jay?"], [], ["How are you?"]]
    assert [gold_of(data, query) for query in data.queries] == found
    assert len(data.queries) - len(data.with_gold().queries) == 1
    assert data.counts["malformed_rows"] == 0
