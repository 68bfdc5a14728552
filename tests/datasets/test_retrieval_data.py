"""Rows become documents, queries and gold: pairs, tables and folders in BEIR's form."""

import numpy as np
import pytest

from jaxwhiten.datasets import from_pairs, load_sts, read_own
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.metrics import recalls


def gold_of(data, query):
    number = data.queries.index(query)
    ids = data.gold.ids[data.gold.indptr[number] : data.gold.indptr[number + 1]]
    return [data.documents[i] for i in ids]


def test_the_first_text_of_an_id_is_kept():
    rows = [("a", "b", "A", "B", 1.0), ("a", "c", "other", "C", 2.0), ("a", "b", "A", "another", 3.0)]
    data = from_pairs("x", rows, {"left_out": 4})
    assert (data.queries, data.documents, data.gold.grades.tolist()) == (["A"], ["B", "C"], [3, 2])
    assert data.counts == {"left_out": 4}
    assert data.with_corpus(["D", "B", "D"]).documents == ["B", "C", "D"]


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
    assert (data.name, data.queries) == ("beir", ["birds"])
    assert data.documents == ["Jays are birds.", "JAX is a library.", "."]
    assert gold_of(data, "birds") == ["Jays are birds."]
    assert data.gold.grades.tolist() == data.with_gold().gold.grades.tolist() == [2]


def test_judged_documents_that_are_not_there_are_counted_and_never_found(beir):
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n2\td1\t1\n2\td2\t1\n2\td9\t1\n2\td8\t1\n")
    with pytest.warns(UserWarning, match="2 judged documents"):
        data = read_own(beir)
    assert data.documents == ["Jays are birds.", "JAX is a library.", "."]
    assert recalls(np.array([[0, 1, 2]]), data.gold).tolist() == [0.5]
    more = data.with_corpus(["Rain.", "Snow."])
    assert recalls(np.array([[0, 1, 2, 3, 4]]), more.gold).tolist() == [0.5]  # neither of them is the missing one
    assert not data.with_gold().only_relevant
    (beir / "corpus.jsonl").write_text('{"_id": "d1", "title": "Jays", "text": "are birds."}\n')
    with pytest.warns(UserWarning, match=r"test.tsv: 3 judged"):
        assert read_own(beir).only_relevant
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n9\td1\t1\n")
    with pytest.raises(DataError, match=r"line 2: .*'9'"):
        read_own(beir)


@pytest.mark.parametrize("label", ["", ",label", ",score"])
def test_a_plain_table_of_queries_and_documents(tmp_path, label):
    rows = ["birds,Jays fly.,1", "birds,A plane flies.,0", 'music,"A guitar, played.",1']
    lines = [row if label else row[:-2] for row in rows]
    (tmp_path / "own.csv").write_text("\n".join([f"query,document{label}", *lines]) + "\n")
    data = read_own(tmp_path / "own.csv")
    assert (data.queries, data.documents) == (["birds", "music"], ["Jays fly.", "A plane flies.", "A guitar, played."])
    assert gold_of(data, "birds") == (["Jays fly."] if label else ["Jays fly.", "A plane flies."])


def test_another_data_set_is_told_where_it_is_read():
    with pytest.raises(InputError, match=r"'STS12'.*eval\.data"):
        load_sts("STS12")
