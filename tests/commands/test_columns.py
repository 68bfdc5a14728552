"""Names of columns win over their order: one rule at every door, which says what it reads."""

import csv
import re

import pytest

from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import InputError
from jaxwhiten.scoring import read
from jaxwhiten.training import OBJECTIVES, read_rows
from tests.conftest import slow_but

# The columns, by their numbers, that doors read as sentences in this order, and as the label; - is refused.
HEADERS = """
header                                          mnr   cosent  score  fit
anchor,positive                                 12    -       12     -
positive,anchor                                 21    -       21     -
anchor,positive,negative                        123   -       12     -
anchor,negative,positive                        132   -       13     -
negative,positive,anchor                        321   -       32     -
hard_negative_1,hardNegative2,query,document    3412  -       34     -
Document,Query                                  21    -       21     -
answer_text,question_text                       21    -       21     -
neg,pos,query                                   321   -       32     -
evidence,claim                                  21    -       21     -
hypothesis,premise                              21    -       -      -
question,answer,url                             12    -       12     -
lang,question,answer                            23    -       23     -
question,author,answer                          13    -       13     -
question,answer,score                           -     12=3    12=3   -
qid,query,docid,document,relevance              -     24=5    24=5   -
duplicate,question2,question1                   -     32=1    32=1   -
id,qid1,qid2,question1,question2,is_duplicate   -     45=6    45=6   -
sentence_A,sentence_B,relatedness_score         -     12=3    12=3   -
label,sentence_1,sentence_0                     -     32=1    32=1   -
gold_label,genre,sentence2,sentence1,pairID     -     43=1    43=1   -
hypothesis,premise,label                        -     21=3    21=3   -
score,one,two                                   -     23=1    23=1   -
one,two                                         12    -       -      -
title,body,publish_date                         12    -       -      -
answer,other                                    21    -       -      -
qid,date                                        -     -       -      -
question,date                                   -     -       -      1
one,two,three                                   -     -       -      -
query,document,passage                          -     -       -      -
0,1                                             12    -       -      -
id,text,label                                   -     -       -      2
id,body                                         -     -       -      2
"""
TABLE = [tuple(line.split()) for line in HEADERS.splitlines()[2:]]
FAST = [
    "anchor,negative,positive",
    "Document,Query",
    "question,answer,score",
    "hypothesis,premise,label",
    "id,text,label",
]
REFUSED = r"there are |has no sentences\. Use|two columns and no score: add"


def cells(header, row):
    label = r"score|label|relevance|duplicate"
    return [str(row) if re.search(label, name) else f"text {at} of row {row}" for at, name in enumerate(header, 1)]


def numbers(columns, header, label=None):
    """The columns that texts and label come from."""
    found = "".join(re.match(r"text (\d) of row 0", column[0])[1] for column in columns)
    return found if label is None else f"{found}={next(i for i, cell in enumerate(cells(header, 1), 1) if cell == '1')}"


def named(said, header):
    """The columns that a note names."""
    taken = re.search(
        r"^note: (?:[^;\n]*?: )?(\w+ from [^;\n]*)(?:; (?:scores|grades|classes) from ([^;\n]+))?", said, re.M
    )
    names = [word for word in re.split(r"[ ,]+", taken[1]) if word in header]
    found = "".join(str(header.index(name) + 1) for name in names)
    return found if taken[2] is None else f"{found}={header.index(taken[2]) + 1}"


@pytest.mark.parametrize(
    ("header", "mnr", "cosent", "score", "fit"),
    slow_but(TABLE, *(line for line in TABLE if line[0] in FAST)),
    ids=[line[0] for line in TABLE],
)
def test_every_door_reads_a_table_alike(run, tmp_path, capsys, header, mnr, cosent, score, fit):
    names, path, out = header.split(","), tmp_path / "t.csv", tmp_path / "out"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, cells(names, 0), cells(names, 1)])
    columns = {name: [cells(names, row)[at] for row in (0, 1)] for at, name in enumerate(names)}

    def of_rows(rows, objective):
        examples = read_rows(rows, OBJECTIVES[objective])
        return numbers(examples.columns.values(), names, examples.label)

    def of_score(data):
        found = read(data)
        if hasattr(found, "sentence1"):
            return numbers((found.sentence1, found.sentence2), names, found.score)
        graded = len(found.gold.ids) < 2  # a row has the grade 0
        return numbers((found.queries, found.documents), names, found.gold if graded else None)

    def of_texts():
        return numbers([list(sentences(str(path)))], names)

    doors = [
        (mnr, ["train"], [lambda: of_rows(path, "mnr"), lambda: of_rows(columns, "mnr")]),
        (cosent, ["train", "--objective", "cosent"], [lambda: of_rows(path, "cosent")]),
        (score, ["score"], [lambda: of_score(path), lambda: of_score(columns)]),
        (fit, ["fit"], [of_texts, lambda: of_rows(columns, "simcse")]),
    ]
    for expected, command, library in doors:
        done = run(*command, path, "--model", "absent", *["-o", out][: 2 * (command != ["score"])])
        if expected == "-":
            assert (done.code, "note" in done.err) == (2, False)
            assert re.search(REFUSED, done.err)
        else:
            assert named(done.err, names) == expected, done.err
        for door in library:
            if expected == "-":
                with pytest.raises(InputError, match=REFUSED):
                    door()
            else:
                assert door() == expected
                assert named(capsys.readouterr().err, names) == expected


def test_a_column_of_ids_is_no_text(run, tmp_path):
    (tmp_path / "t.csv").write_text("key,body\n1,A man.\n2,Two dogs.\n")
    for command in ("index", "embed"):
        done = run(command, tmp_path / "t.csv", "--id", "key", "--model", "absent", "-o", tmp_path / "out")
        assert "note: texts from body\n" in done.err


def test_labels_fit_the_objective(tmp_path):
    names = ("label", "sentence1", "sentence2", "score")
    rows = [dict(zip(names, row, strict=True)) for row in (("no", "a", "b", 0), ("yes", "c", "d", 1))]
    assert read_rows(rows, OBJECTIVES["cosent"]).label.tolist() == [0, 1]
    assert read_rows(rows, OBJECTIVES["softmax"]).classes == ("no", "yes")
    with pytest.raises(InputError, match="score, similarity"):
        read_rows([{**row, "similarity": 1} for row in rows], OBJECTIVES["cosent"])


@pytest.mark.parametrize("cell", ["true", "No", "0", "contradiction"])
def test_what_is_no_sentence_is_no_negative(cell):
    rows = [("a dog", "A dog runs.", cell), ("rain", "It rains.", cell)]
    with pytest.raises(InputError, match="'column3'"):
        read_rows(rows, OBJECTIVES["mnr"])
