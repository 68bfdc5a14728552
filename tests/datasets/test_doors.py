"""Users' rows by every door: keys, names and numbers that damage a table, and files that are not plain ones."""

import json
import os
import threading

import numpy as np
import pytest

from jaxwhiten.datasets import chunks, corpus_files, from_pairs, read_header, read_own
from jaxwhiten.datasets.tables import as_table
from jaxwhiten.errors import DataError, InputError, NonFiniteError
from jaxwhiten.scoring.data import read
from jaxwhiten.training import find_objective
from jaxwhiten.training.rows import read_rows

MNR = find_objective("mnr")


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("lacking", [0, 2])
def test_a_key_that_one_row_lacks_is_missed_there(tmp_path, lacking):
    rows = [{"query": f"q{row}", "document": f"d{row}", "score": row % 2} for row in range(4)]
    del rows[lacking]["score"]
    path = json_lines(tmp_path / "t.jsonl", rows)
    for source, place in ((path, f"line {lacking + 1}"), (rows, f"row {lacking}")):
        assert set(read_header(as_table(source))) == {"query", "document", "score"}
        with pytest.raises(DataError, match=f"{place}: .*'score'"):
            read(source)
        with pytest.raises(DataError, match=f"{place}: .*'score'"):
            read_rows(source, find_objective("cosent"))
        examples = read_rows(source, find_objective("cosent"), skip_bad_rows=True)
        assert (len(examples), examples.skipped) == (3, 1)


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_two_columns_of_one_name_are_refused(kind):
    if kind == "pandas":
        rows = pytest.importorskip("pandas").DataFrame([["a", "b", "c"]] * 3, columns=["query", "document", "document"])
    else:
        pa = pytest.importorskip("pyarrow")
        rows = pa.Table.from_arrays([pa.array(["a", "b"])] * 3, names=["query", "document", "document"])
    for door in (as_table, read, lambda rows: read_rows(rows, MNR)):
        with pytest.raises(InputError, match="'document'"):
            door(rows)


@pytest.mark.parametrize("grade", ["nan", "inf"])
def test_a_grade_that_is_no_number_is_refused(tmp_path, grade):
    (tmp_path / "q.csv").write_text(f"query,document,score\na,b,1\nc,d,{grade}\n")
    with pytest.raises(DataError, match=rf"q\.csv, line 3: .* is '{grade}', expected a finite number"):
        read(tmp_path / "q.csv")
    with pytest.raises(NonFiniteError, match=f"'b' is {grade}"):
        from_pairs("x", [("a", "b", "A", "B", float(grade))])


def test_ids_in_floating_point_are_integers_unless_they_may_be_rounded(tmp_path):
    source = chunks.Source(str(json_lines(tmp_path / "t.jsonl", [{"id": 3.0, "text": "a"}])), "jsonl", "text", "id")
    assert [row.id for row in chunks.rows(source)] == [3]
    json_lines(tmp_path / "t.jsonl", [{"id": 2.0**53, "text": "a"}])
    with pytest.raises(DataError, match="line 1: id"):
        list(chunks.rows(source))


def beir(folder, queries, judged):
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", ["a dog", "rain", "music"]), ("queries", queries)):
        rows = [{"_id": str(row), "title": "T" * (text == "a dog"), "text": text} for row, text in enumerate(texts)]
        json_lines(folder / f"{name}.jsonl", rows)
    lines = [f"{query}\t{document}\t1" for query, document in judged]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return read_own(folder)


def test_only_a_query_itself_is_left_out_and_never_a_judged_document(tmp_path, capsys):
    assert beir(tmp_path / "a", ["what dog", "what rain", "what music"], [(0, 0), (1, 1), (2, 2)]).own_documents == 0
    assert beir(tmp_path / "b", ["a dog", "rain", "music"], [(0, 0), (1, 1), (2, 2)]).own_documents == 0
    assert "left out" not in capsys.readouterr().err
    own = beir(tmp_path / "c", [" A dog ", "rain", "something else"], [(0, 1), (1, 1), (2, 0)])
    assert own.own.tolist() == [0, -1, -1]
    assert own.others(np.array([[0, 1, 2]] * 3)).tolist() == [[1, 2], [0, 1], [0, 1]]
    assert own.own_documents == 1
    assert "c: 1 document left out of the results of the query with the same id and text" in capsys.readouterr().err
    assert own.of(np.array([0, 2])).own.tolist() == [0, -1]


def test_a_folder_is_read_with_its_subfolders(tmp_path):
    for name in ("b.txt", "sub/a.txt", "sub/deep/c.txt.gz", ".git/d.txt", "sub/e.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    found = [str(path.relative_to(tmp_path)) for path in corpus_files(tmp_path)]
    assert found == ["b.txt", "sub/a.txt", "sub/deep/c.txt.gz"]
    assert len(corpus_files(f"{tmp_path}/**/*.txt*")) == 3


@pytest.fixture
def pipe(tmp_path):
    """Makes a named pipe to which a thread writes."""
    threads = []

    def make(name, text):
        os.mkfifo(tmp_path / name)
        threads.append(threading.Thread(target=(tmp_path / name).write_text, args=(text,), daemon=True))
        threads[-1].start()
        return tmp_path / name

    yield make
    for thread in threads:
        thread.join(10)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_read(pipe):
    from jaxwhiten.commands.arguments import TableOptions
    from jaxwhiten.commands.texts import sentences

    assert list(sentences(str(pipe("t.txt", "a\nb\n")))) == ["a", "b"]
    assert list(sentences(str(pipe("t.csv", "id,text\n1,a\n")), TableOptions(column=["text"]))) == ["a"]
    assert read(pipe("q.csv", "query,document\na,b\nc,d\n")).queries == ["a", "c"]
    assert len(read_rows(pipe("p.csv", "anchor,positive\na,b\nc,d\n"), MNR)) == 2
