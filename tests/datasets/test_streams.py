"""Streams whose rows come in another order each time: read once, row by row, at every door."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.datasets.tables import as_table
from jaxwhiten.errors import InputError
from jaxwhiten.scoring import data
from jaxwhiten.training import find_objective
from jaxwhiten.training.rows import read_rows

N = 40
ROWS = [{"sentence1": f"a {row}", "sentence2": f"b {row}", "score": row / N} for row in range(N)]


@pytest.fixture
def tiny_encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean")


class Shuffled:
    """A table that shuffles its rows for every pass over them, and counts these; shaped as a stream of datasets."""

    def __init__(self, rows):
        self.rows, self.passes = rows, 0

    @property
    def column_names(self):
        return list(self.rows[0])

    @property
    def features(self):
        return dict.fromkeys(self.rows[0], "string")

    def __iter__(self):
        self.passes += 1
        order = np.random.default_rng(self.passes).permutation(len(self.rows))
        return (self.rows[row] for row in order)

    def __getitem__(self, name):
        return IterableColumn(self, name)


class IterableColumn:
    """A column of a stream, named as that of datasets."""

    def __init__(self, stream, name):
        self.stream, self.name = stream, name

    def __iter__(self):
        return (row[self.name] for row in self.stream)


def of_datasets(rows):
    """The library's own stream, whose generator shuffles."""
    datasets = pytest.importorskip("datasets")
    table = Shuffled(rows)
    kinds = {str: "string", float: "float64", int: "int64"}
    features = datasets.Features({name: datasets.Value(kinds[type(value)]) for name, value in rows[0].items()})
    stream = datasets.IterableDataset.from_generator(lambda: iter(table), features=features)
    stream.table = table
    return stream


def passes(stream):
    return getattr(stream, "table", stream).passes


def renamed(**names):
    return [{new: row[old] for old, new in names.items()} for row in ROWS]


def numbered(*columns):
    """The numbers of the rows, by column, from their texts."""
    return [[int(str(text).split()[-1]) for text in column] for column in columns]


DOORS = {
    "as_table": (ROWS, lambda stream: numbered(*[*as_table(stream).values()][:2])),
    "pairs": (ROWS, lambda stream: numbered(*_sides(data.read(stream)))),
    "searches": (
        renamed(sentence1="query", sentence2="document"),
        lambda stream: _matches(data.read(stream)),
    ),
    "training on scores": (ROWS, lambda stream: _scored(read_rows(stream, find_objective("cosent")))),
}


def _sides(pairs):
    np.testing.assert_allclose(pairs.score * N, numbered(pairs.sentence1)[0])
    return pairs.sentence1, pairs.sentence2


def _matches(found):
    return numbered(found.queries, [found.documents[row] for row in found.gold.ids])


def _scored(examples):
    sides = numbered(*examples.columns.values())
    np.testing.assert_allclose(examples.label * (N - 1), sides[0], atol=1e-3)
    return sides


@pytest.mark.parametrize(("stream_of", "door"), [*((Shuffled, door) for door in DOORS), (of_datasets, "as_table")])
def test_rows_stay_together_and_are_read_once(stream_of, door):
    rows, read = DOORS[door]
    first, second = read(stream := stream_of(rows))
    assert first == second
    assert sorted(first) == list(range(N))
    assert passes(stream) == 1


@pytest.mark.parametrize("stream_of", [Shuffled, of_datasets])
def test_two_columns_of_a_stream_are_refused(stream_of, tiny_encoder):
    stream = stream_of(ROWS)
    columns = {name: stream[name] for name in stream.column_names}
    for door in (
        lambda: as_table(columns),
        lambda: data.read(tuple(columns.values())),
        lambda: tiny_encoder.index(columns["sentence1"], ids=columns["sentence2"]),
    ):
        with pytest.raises(InputError, match=r"stream.*another order"):
            door()
