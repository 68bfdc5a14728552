"""Users' rows by every door: quotes, keys and names that damage a table, and files that are not plain ones."""

import json
import os
import threading

import numpy as np
import pytest

from jaxwhiten.datasets import chunks, corpus_files, from_pairs, read_header, read_own, read_table
from jaxwhiten.datasets.tables import as_table, table_rows
from jaxwhiten.datasets.textfile import BadRows, numbered_lines
from jaxwhiten.errors import DataError, InputError, NonFiniteError
from jaxwhiten.scoring.data import read
from jaxwhiten.training import find_objective
from jaxwhiten.training.rows import read_rows

MNR = find_objective("mnr")


def by_table(path, skip):
    table = read_table(path, {"a": "anchor", "b": "positive"}, skip_bad_rows=skip)
    return list(zip(table["a"], table["b"], strict=True)), table.skipped


def by_rows(path, skip):
    bad = BadRows(path, skip)
    return [tuple(row) for _, row in table_rows(path, ["anchor", "positive"], bad=bad)], bad.count


def by_training(path, skip):
    examples = read_rows(path, MNR, columns=("anchor", "positive"), skip_bad_rows=skip)
    return list(zip(*examples.columns.values(), strict=True)), examples.skipped


def by_embedding(path, skip):
    found = list(chunks.rows(chunks.Source(str(path), path.suffix[1:], "anchor+positive"), skip_bad=skip))
    texts = [tuple(row.text.split("\n", 1)) for row in found if row.text is not None]
    return texts, sum(row.text is None for row in found)


READERS = pytest.mark.parametrize("read_by", [by_table, by_rows, by_training, by_embedding])


@READERS
@pytest.mark.parametrize("stray", ['"a broken quote,b', '"never closed,b', '"a" b,c'])
def test_a_stray_quotation_mark_is_a_bad_row(tmp_path, read_by, stray):
    path = tmp_path / "t.csv"
    path.write_text("anchor,positive\n" + "\n".join(["a,b", stray, *["c,d"] * 200]) + "\n")
    with pytest.raises(DataError, match=r"t\.csv, line 3: .*quotation marks"):
        read_by(path, False)
    assert read_by(path, True) == ([("a", "b"), *[("c", "d")] * 200], 1)


@READERS
@pytest.mark.parametrize("mark", [",", "\t"])
def test_long_texts_in_quotes_are_one_cell(tmp_path, read_by, mark):
    text = "\n".join(["Dear all,", *(f"line {i}, of prose" for i in range(40)), 'with "quotes".'])
    cell = text.replace('"', '""')
    path = tmp_path / f"t.{'csv' if mark == ',' else 'tsv'}"
    path.write_text(f'anchor{mark}id{mark}positive\n"{cell}"{mark}1{mark}b\na{mark}2{mark}b\n')
    if read_by is by_embedding:
        assert [row.text for row in chunks.rows(chunks.Source(str(path), path.suffix[1:], "anchor"))] == [text, "a"]
    else:
        assert read_by(path, False) == ([(text, "b"), ("a", "b")], 0)


CELLS = [("two\nlines", "b"), ('say "hi"', "tab\there"), ('"', '""'), ("plain", 'ends with "'), ("x", "last\nline")]


@READERS
@pytest.mark.parametrize("all_quoted", [False, True])
def test_tsv_comes_back_as_pandas_writes_it(tmp_path, read_by, all_quoted):
    pd = pytest.importorskip("pandas")
    path = tmp_path / "t.tsv"
    table = pd.DataFrame(CELLS, columns=["anchor", "positive"]).assign(score=1)
    table.to_csv(path, sep="\t", index=False, quoting=int(all_quoted))
    if read_by is by_embedding:
        texts = [row.text for row in chunks.rows(chunks.Source(str(path), "tsv", "anchor"))]
        assert texts == [first for first, _ in CELLS]
    else:
        assert read_by(path, False) == (CELLS, 0)


def test_quotation_marks_of_plain_tsv_stay(tmp_path):
    path = tmp_path / "t.tsv"
    rows = ['"Foo" is what?\tb', '"open\tb', "a\tb", 'a\t"open', "c\td", 'e\tclosed"', "f\tg"]
    path.write_text("anchor\tpositive\n" + "\n".join(rows) + "\n")
    assert by_table(path, False) == ([tuple(row.split("\t")) for row in rows], 0)


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["lines", "dicts"])
@pytest.mark.parametrize("lacking", [0, 2])
def test_a_key_that_one_row_lacks_is_missed_there(tmp_path, form, lacking):
    searches = [{"query": f"q{row}", "document": f"d{row}", "score": row % 2} for row in range(4)]
    del searches[lacking]["score"]
    triplets = [{"anchor": f"a{row}", "positive": f"b{row}", "negative": f"c{row}"} for row in range(4)]
    del triplets[lacking]["negative"]
    if form == "lines":
        searches, triplets = (json_lines(tmp_path / f"{n}.jsonl", x) for n, x in enumerate((searches, triplets)))
    line = f"line {lacking + (form == 'lines')}: no key"
    with pytest.raises(DataError, match=f"{line} 'score'"):
        read(searches)
    with pytest.raises(DataError, match=f"{line} 'negative'"):
        read_rows(triplets, MNR)
    examples = read_rows(triplets, MNR, skip_bad_rows=True)
    assert (len(examples), len(examples.columns), examples.skipped) == (3, 3, 1)
    assert set(read_header(as_table(searches))) == {"query", "document", "score"}


def test_a_key_that_is_not_read_may_be_anywhere(tmp_path):
    rows = [{"text": "a"}, {"text": "b", "note": None}]
    assert read_table(json_lines(tmp_path / "t.jsonl", rows), {"text": "text"}) == {"text": ["a", "b"]}
    assert read_rows([{"text": "a"}, {"text": "b", "note": "x"}], find_objective("simcse"), columns=["text"])


def test_a_bad_row_of_a_folder_costs_no_other_file(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text('query,document\nq,"d"d\nq,d\n')
    table = read_table(tmp_path, skip_bad_rows=True)
    assert (table["query"], table.skipped) == (["q", "q"], 2)


def test_the_files_of_a_folder_have_their_columns_together(tmp_path):
    (tmp_path / "a.csv").write_text("query,document\nq,d\n")
    (tmp_path / "b.csv").write_text("query,document,score\nq,d,0\n")
    with pytest.raises(DataError, match=r"a\.csv, line 1: no column 'score'"):
        read_table(tmp_path)


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_two_columns_of_one_name_are_refused(kind):
    if kind == "pandas":
        rows = pytest.importorskip("pandas").DataFrame([["a", "b", "c"]] * 3, columns=["query", "document", "document"])
    else:
        pa = pytest.importorskip("pyarrow")
        rows = pa.Table.from_arrays([pa.array(["a", "b"])] * 3, names=["query", "document", "document"])
    for door in (as_table, read, lambda rows: read_rows(rows, MNR)):
        with pytest.raises(InputError, match="more than one column 'document'"):
            door(rows)


@pytest.mark.parametrize("labels", [np.array([True, False, True]), [np.True_, np.False_, np.True_]])
def test_labels_may_be_bools_of_numpy(labels):
    rows = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "score": labels}
    assert read(rows).score.tolist() == read_rows(rows, find_objective("cosent")).label.tolist() == [1, 0, 1]


def test_tables_that_are_not_computed_yet_are_refused():
    pl = pytest.importorskip("polars")
    lazy = pl.DataFrame({"anchor": ["a", "b"], "positive": ["c", "d"]}).lazy()
    for door in (as_table, read, lambda rows: read_rows(rows, MNR)):
        with pytest.raises(InputError, match=r"LazyFrame, which is not computed yet: pass the result of its collect"):
            door(lazy)


@pytest.mark.parametrize("grade", ["nan", "inf"])
def test_a_grade_that_is_no_number_is_refused(tmp_path, grade):
    (tmp_path / "q.csv").write_text(f"query,document,score\na,b,1\nc,d,{grade}\n")
    with pytest.raises(DataError, match=rf"q\.csv, line 3: .* is {grade}, expected a finite number"):
        read(tmp_path / "q.csv")
    with pytest.raises(NonFiniteError, match=f"query 'a' and document 'b' is {grade}"):
        from_pairs("x", [("a", "b", "A", "B", float(grade))])


@pytest.mark.parametrize(("id", "expected"), [(3.0, 3), (2.0**53 - 1, 2**53 - 1), (2.0**53, None), (1.7e18, None)])
def test_an_id_that_floating_point_may_have_rounded_is_refused(tmp_path, id, expected):
    path = json_lines(tmp_path / "t.jsonl", [{"id": id, "text": "a"}])
    source = chunks.Source(str(path), "jsonl", "text", "id")
    if expected is None:
        with pytest.raises(DataError, match=r"line 1: id: .* is not an ID, .*floating point rounds integers"):
            list(chunks.rows(source))
    else:
        assert [row.id for row in chunks.rows(source)] == [expected]


def beir(folder, document_ids, documents, queries, judged):
    (folder / "qrels").mkdir(parents=True)
    ids = [document_ids.format(row) for row in range(len(documents))]
    corpus = [
        {"_id": id, "title": "T" if id == "0" else "", "text": text} for id, text in zip(ids, documents, strict=True)
    ]
    json_lines(folder / "corpus.jsonl", corpus)
    json_lines(folder / "queries.jsonl", [{"_id": str(row), "text": text} for row, text in enumerate(queries)])
    lines = [f"{query}\t{ids[document]}\t1" for query, document in judged]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def test_only_a_query_itself_is_left_out_and_never_a_judged_document(tmp_path, capsys):
    texts = ["a dog", "rain", "music"]
    alike = read_own(
        beir(tmp_path / "a", "{}", texts, ["what dog", "what rain", "what music"], [(0, 0), (1, 1), (2, 2)])
    )
    assert alike.own is None
    judged = read_own(beir(tmp_path / "b", "{}", texts, texts, [(0, 0), (1, 1), (2, 2)]))
    assert judged.own is None
    assert "left out" not in capsys.readouterr().err
    own = read_own(beir(tmp_path / "c", "{}", texts, [" A dog ", "rain", "something else"], [(0, 1), (1, 1), (2, 0)]))
    assert own.own.tolist() == [0, -1, -1]
    assert own.others(np.array([[0, 1, 2]] * 3)).tolist() == [[1, 2], [0, 1], [0, 1]]
    assert (own.own_documents, own.counts["own_documents_left_out"]) == (1, 1)
    assert "c: 1 document left out of the results of the query with the same id and text" in capsys.readouterr().err
    assert own.of(np.array([1])).own is None
    assert own.of(np.array([0, 2])).own.tolist() == [0, -1]


def test_a_folder_is_read_with_its_subfolders(tmp_path):
    for name in ("b.txt", "sub/a.txt", "sub/deep/c.txt.gz", ".git/d.txt", "sub/e.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    found = [str(path.relative_to(tmp_path)) for path in corpus_files(tmp_path)]
    assert found == ["b.txt", "sub/a.txt", "sub/deep/c.txt.gz"]
    assert len(corpus_files(f"{tmp_path}/**/*.txt*")) == 3


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t.jsonl"])
def test_line_ends_of_carriage_returns_alone_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"id,text\r1,a\r2,b\r")
    door = read_table if name != "t.txt" else lambda path: list(numbered_lines(path))
    with pytest.raises(DataError, match=rf"{name}, line 1: its lines end with a carriage return alone"):
        door(tmp_path / name)
    (tmp_path / name).write_bytes(b"a\r\nb\r")
    assert [line for _, line in numbered_lines(tmp_path / name)] == ["a", "b"]


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
    from jaxwhiten.commands.texts import sentences

    assert list(sentences(str(pipe("t.txt", "a\nb\n")))) == ["a", "b"]
    assert list(sentences(str(pipe("t.csv", "id,text\n1,a\n")), None, ["text"])) == ["a"]
    assert read(pipe("q.csv", "query,document\na,b\nc,d\n")).queries == ["a", "c"]
    assert len(read_rows(pipe("p.csv", "anchor,positive\na,b\nc,d\n"), MNR)) == 2
