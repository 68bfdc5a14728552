"""Quora from a local folder, downloaded from loopback, or neither; its rows as a search, bad ones counted."""

import csv
import gzip

import pytest

from eval.data import read_quora
from eval.data.quora import FILE
from eval.searches import load_search
from jaxwhiten.errors import DataError, DataNotFoundError

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


def test_without_folder_and_network_both_remedies_are_named(no_data, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXWHITEN_QUORA_URL", "http://127.0.0.1:9/q.tsv")
    with pytest.raises(DataNotFoundError, match=r"data_dir.* or connect"):
        load_search("quora", None)
    with pytest.raises(DataNotFoundError, match=f"no {FILE} in it"):
        load_search("quora", str(tmp_path))


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


def test_the_first_text_of_an_id_wins(tmp_path):
    data = read_quora(
        write(tmp_path / "p.tsv", "0\t1\t2\tA\tB\t1", "1\t1\t2\tA\tanother B\t1", "2\t1\t3\tanother A\tC\t0")
    )
    assert data.documents == ["B", "C"]


@pytest.mark.parametrize(
    "row",
    ["5\t6", "5\t6\t7\ta\tb", "5\t6\t7\ta\tb\t1\textra", "5\t\t7\ta\tb\t1", "5\t6\t7\ta\tb\t2", "5\t6\t7\ta\tb\t"],
)
def test_ragged_rows_are_counted_and_left_out(row, tmp_path):
    data = read_quora(write(tmp_path / "p.tsv", "0\t1\t2\tA\tB\t1", row, "2\t3\t4\tC\tD\t1"))
    assert data.queries == ["A", "C"]
    assert data.counts["malformed_rows"] == 1


def test_quoted_fields_with_tabs_quotes_and_line_ends_survive(tmp_path):
    texts = ['say "hi"', "tab\there", "two\nlines", '"', 'ends with "', "plain", "line\n\n\nends \"and\" 'quotes'\t!"]
    path = tmp_path / "p.tsv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(HEADER.split("\t"))
        writer.writerows([i, f"q{i}", f"d{i}", text, text[::-1], i % 2] for i, text in enumerate(texts))
    data = read_quora(path)
    assert data.queries == [text.strip() for text in texts]
    assert data.documents == [text[::-1].strip() for text in texts]
    assert data.counts["malformed_rows"] == 0


def test_unquoted_quotation_marks_survive(tmp_path):
    data = read_quora(
        write(
            tmp_path / "p.tsv",
            '0\t1\t2\t"Foo" is what?\tWhat is "Foo"?\t1',
            '1\t3\t4\t"never closed\tB\t1',
            "2\t5\t6\tC\tD\t1",
            '3\t7\t8\tE\t"\t0',
        )
    )
    assert data.queries == ['"Foo" is what?', '"never closed', "C", "E"]
    assert data.documents == ['What is "Foo"?', "B", "D", '"']
    assert data.counts["malformed_rows"] == 0


@pytest.mark.parametrize("lines", [[], [""], ["x\ty"]])
def test_a_file_without_a_good_row_is_refused(lines, tmp_path):
    with pytest.raises(DataError, match="no pairs"):
        read_quora(write(tmp_path / "p.tsv", *lines))


def test_the_real_quora_duplicates(real_data):
    data = read_quora(real_data / "pairs/quora_duplicates/quora_dup_sae.tsv.gz")
    assert data.counts["malformed_rows"] == 0
    assert len(data.documents) == 13_101
    assert len(data.queries) == 13_098
    assert len(data.queries) - len(data.with_gold().queries) == 0
