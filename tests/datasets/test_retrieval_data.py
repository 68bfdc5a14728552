"""Question pairs become documents, queries and gold: the paper's form, ragged rows counted, oddities reported."""

import csv
import gzip

import numpy as np
import pytest

from jaxwhiten.datasets import read_own
from jaxwhiten.datasets.retrieval import from_pairs, read_pairs_file
from jaxwhiten.errors import DataError
from jaxwhiten.metrics import recalls

HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def write(path, *lines, header=HEADER):
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def gold_of(data, query):
    number = data.query_ids.index(query)
    ids = data.gold.ids[data.gold.indptr[number] : data.gold.indptr[number + 1]]
    return [data.document_ids[i] for i in ids]


def test_the_papers_form(tmp_path):
    data = read_pairs_file(
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
    assert data.query_ids == ["1", "3", "2"]
    assert data.queries == ["How are you?", "What is JAX?", "How do you do?"]
    assert data.document_ids == ["2", "4", "1"]
    assert data.documents == ["How do you do?", "What is a jay?", "How are you?"]
    assert [gold_of(data, q) for q in data.query_ids] == [["2", "4"], [], ["1"]]
    assert data.counts["rows"] == 5
    assert data.counts["queries_without_gold"] == 1
    assert data.counts["malformed_rows"] == 0


def test_the_first_text_of_an_id_wins_and_others_are_reported(tmp_path):
    data = read_pairs_file(
        write(tmp_path / "p.tsv", "0\t1\t2\tA\tB\t1", "1\t1\t2\tA\tanother B\t1", "2\t1\t3\tanother A\tC\t0")
    )
    assert data.documents == ["B", "C"]
    assert data.counts["rows_with_another_text_of_a_document"] == 1
    assert data.counts["rows_with_another_text_of_a_query"] == 1
    assert any("document 2: 'B' and 'another B'" in text for text in data.conflicts)


@pytest.mark.parametrize(
    "row",
    ["5\t6", "5\t6\t7\ta\tb", "5\t6\t7\ta\tb\t1\textra", "5\t\t7\ta\tb\t1", "5\t6\t7\ta\tb\t2", "5\t6\t7\ta\tb\t", ""],
)
def test_ragged_rows_are_counted_and_left_out(row, tmp_path):
    data = read_pairs_file(write(tmp_path / "p.tsv", "0\t1\t2\tA\tB\t1", row, "2\t3\t4\tC\tD\t1"))
    assert data.queries == ["A", "C"]
    assert data.counts["malformed_rows"] == 1


def test_broken_bytes_are_counted(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_bytes(HEADER.encode() + b"\n0\t1\t2\tA\tB\t1\n1\t3\t4\t\xff\xfe\tD\t1\n2\t5\t6\tE\0\tF\t1\n")
    data = read_pairs_file(path)
    assert data.queries == ["A"]
    assert data.counts["malformed_rows"] == 2


def test_quoted_fields_with_tabs_quotes_and_line_ends_survive(tmp_path):
    texts = ['say "hi"', "tab\there", "two\nlines", '"', 'ends with "', "plain", "line\n\n\nends \"and\" 'quotes'\t!"]
    path = tmp_path / "p.tsv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(HEADER.split("\t"))
        writer.writerows([i, f"q{i}", f"d{i}", text, text[::-1], i % 2] for i, text in enumerate(texts))
    data = read_pairs_file(path)
    assert data.queries == [text.strip() for text in texts]
    assert data.documents == [text[::-1].strip() for text in texts]
    assert data.counts["malformed_rows"] == 0


def test_unquoted_quotation_marks_survive(tmp_path):
    data = read_pairs_file(
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


def test_a_stray_quotation_mark_does_not_swallow_the_file(tmp_path):
    rows = [f"{i}\ta{i}\tb{i}\tquestion {i}\tanswer {i}\t1" for i in range(200)]
    rows[50] = '50\ta50\tb50\t"question 50\tanswer 50\t1'
    data = read_pairs_file(write(tmp_path / "p.tsv", *rows))
    assert len(data.queries) == 200


def test_gzip_byte_order_mark_and_columns_in_another_order(tmp_path):
    path = tmp_path / "p.tsv.gz"
    text = "\ufeffis_duplicate\tquestion2\tquestion1\tqid2\tqid1\r\n1\tB\tA\t2\t1\r\n"
    path.write_bytes(gzip.compress(text.encode()))
    data = read_pairs_file(path, "mine")
    assert (data.name, data.queries, data.documents, data.query_ids) == ("mine", ["A"], ["B"], ["1"])


def test_an_empty_text_becomes_a_full_stop_and_is_counted(tmp_path):
    data = read_pairs_file(write(tmp_path / "p.tsv", "0\t1\t2\t\t  \t1"))
    assert (data.queries, data.documents, data.counts["empty_texts"]) == (["."], ["."], 2)


@pytest.mark.parametrize("lines", [[], [""], ["x\ty"]])
def test_a_file_without_a_good_row_is_refused(lines, tmp_path):
    with pytest.raises(DataError, match="no pairs"):
        read_pairs_file(write(tmp_path / "p.tsv", *lines))


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(DataError, match=r"line 1: no column qid1, is_duplicate"):
        read_pairs_file(write(tmp_path / "p.tsv", header="id\tqid2\tquestion1\tquestion2"))
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="no column"):
        read_pairs_file(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file"):
        read_pairs_file(tmp_path / "absent")


def test_from_pairs_without_gold():
    data = from_pairs("x", [("a", "b", "A", "B", False)])
    assert data.counts["queries_without_gold"] == 1
    assert data.gold.indptr.tolist() == [0, 0]
    assert data.gold.ids.dtype == np.int64


def test_the_real_quora_duplicates(real_data):
    data = read_pairs_file(real_data / "pairs/quora_duplicates/quora_dup_sae.tsv.gz")
    assert data.counts["rows"] == 15_026
    assert data.counts["malformed_rows"] == 0
    assert len(data.documents) == 13_101
    assert len(data.queries) == 13_098
    assert data.counts["queries_without_gold"] == 0


@pytest.fixture
def beir(tmp_path):
    """A folder in BEIR's form: three documents, a query that is judged and one that is not."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "Jays", "text": "are birds.", "metadata": {}}\n'
        '{"_id": "d2", "title": "", "text": "JAX is a library."}\n{"_id": "d3", "title": "", "text": ""}\n'
    )
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "not judged"}\n{"_id": "2", "text": "birds"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n2\td1\t2\n2\td2\t0\n")
    (folder / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n1\td2\t1\n")
    return folder


def test_a_folder_in_beirs_form(beir):
    data = read_own(beir)
    assert (data.name, data.document_ids, data.query_ids) == ("beir", ["d1", "d2", "d3"], ["2"])
    assert data.documents == ["Jays are birds.", "JAX is a library.", "."]
    assert gold_of(data, "2") == ["d1"]
    assert data.gold.grades.tolist() == data.with_gold().gold.grades.tolist() == [2]
    assert data.counts["rows"] == 2


def test_judged_documents_that_are_not_there_are_counted_and_never_found(beir):
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n2\td1\t1\n2\td9\t1\n")
    with pytest.warns(UserWarning, match=r"test.tsv: 1 judged documents are not in the corpus"):
        data = read_own(beir)
    assert (data.document_ids, data.counts["judged_documents_missing"]) == (["d1", "d2", "d3"], 1)
    assert recalls(np.array([[0, 1, 2]]), data.gold).tolist() == [0.5]
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n9\td1\t1\n")
    with pytest.raises(DataError, match=r"test.tsv, line 2: the query '9' is not in"):
        read_own(beir)


def test_a_missing_title_is_empty(beir):
    (beir / "corpus.jsonl").write_text('{"_id": "d1", "text": "No title."}\n{"_id": "d2", "title": "T", "text": "x"}\n')
    assert read_own(beir).documents == ["No title.", "T x"]


def test_a_querys_own_document_is_no_result(beir):
    assert read_own(beir).own is None
    with (beir / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "2", "text": "birds"}\n')
    data = read_own(beir)
    assert data.own.tolist() == [3]
    assert data.others(np.array([[3, 0, 1]])).tolist() == [[0, 1]]
    assert data.others(np.array([[0, 1, 2]])).tolist() == [[0, 1]]
    assert data.with_gold().own.tolist() == [3]


def test_a_folder_that_is_not_beirs(tmp_path):
    with pytest.raises(DataError, match=r"qrels/test.tsv: no such file"):
        read_own(tmp_path)


@pytest.mark.parametrize("label", ["", ",label", ",score"])
def test_a_plain_table_of_queries_and_documents(tmp_path, label):
    rows = ["birds,Jays fly.,1", "birds,A plane flies.,0", 'music,"A guitar, played.",1']
    lines = [row if label else row[:-2] for row in rows]
    (tmp_path / "own.csv").write_text("\n".join([f"query,document{label}", *lines]) + "\n")
    data = read_own(tmp_path / "own.csv")
    assert (data.queries, data.documents) == (["birds", "music"], ["Jays fly.", "A plane flies.", "A guitar, played."])
    assert gold_of(data, "birds") == (["Jays fly."] if label else ["Jays fly.", "A plane flies."])
