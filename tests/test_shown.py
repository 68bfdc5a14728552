"""What prints itself: at most ten lines, whatever it holds; tables in notebooks, data frames and plots."""

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten import Encoder, Moments, ScoredPairs, SpectrumCode, TrainingOptions, Whitening, build_index, evaluate
from jaxwhiten.codes import Int8, UBinary
from jaxwhiten.datasets import Examples, from_pairs, load_sts
from jaxwhiten.errors import MissingDependencyError
from jaxwhiten.scoring import Unjudged
from jaxwhiten.search import Hit, JoinedIndex
from jaxwhiten.search.index import Hits

TEXTS = [f"The {number}th\nsentence <b>is</b> about {'many ' * 40}things." for number in range(400)]


@pytest.fixture(scope="module")
def encoder():
    return Encoder.from_pretrained("jaxwhiten-tiny", pooling="mean", max_length=32, tuned=True)


@pytest.fixture(scope="module")
def index(encoder):
    metadata = [{"year": 1900 + number} for number in range(400)]
    return encoder.index(TEXTS, ids=[f"d{number}" for number in range(400)], metadata=metadata)


@pytest.fixture(scope="module")
def result(encoder):
    return evaluate(encoder, load_sts("sts_sample").splits["test"], resamples=50)


def test_reprs_are_short(encoder, index, result):
    rows = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    pairs = load_sts("sts_sample").splits["test"]
    whitening = Whitening().fit(rows)
    shown = [
        *(encoder, encoder.shrink(TEXTS, bytes=24), encoder.view, index, JoinedIndex([index]), result),
        *(index.search("a dog", k=300), index.search("a dog", k=3), index["d3"]),
        *(pairs, load_sts("sts_sample"), ScoredPairs(rows, rows, rows[:, 0]), Unjudged.of(TEXTS)),
        from_pairs("pets", [(text, text, text, text, True) for text in TEXTS]),
        Examples({"anchor": TEXTS, "positive": TEXTS}, np.zeros(400, np.float32)),
        *(whitening, Moments().update(rows), SpectrumCode(bytes=8).fit(rows), Int8().fit(rows), UBinary().fit(rows)),
        *(encoder.view.space, TrainingOptions(), encoder.encode(TEXTS), build_index(rows)),
    ]
    for one in shown:
        assert len(repr(one).splitlines()) <= 10, type(one)
        assert len(repr(one)) < 3000, type(one)
    public = {type(one).__name__ for one in shown}
    classes = {name for name in jaxwhiten.__all__ if isinstance(getattr(jaxwhiten, name), type)}
    assert classes - public <= {"CrossEncoder"}


def test_hits_are_a_table(index):
    hits = index.search("things", k=100, where="year < 1950")
    lines = repr(hits).splitlines()
    assert lines[0].split() == ["score", "id", "text"]
    assert lines[1].split()[:3] == ["1", f"{hits[0].score:.3f}", hits[0].id]
    assert lines[-1] == f"… {len(hits) - 8} more"
    frame = hits.to_pandas()
    assert list(frame.columns) == ["id", "score", "text", "year"]
    assert frame["id"].tolist() == [hit.id for hit in hits]
    assert frame["year"].tolist() == [hit.metadata["year"] for hit in hits]
    assert hits == list(hits)
    assert isinstance(hits[0], Hit)
    assert repr(Hits()).split() == ["score", "id", "text"]
    assert [type(some) for some in index.search(["a dog", "things"], k=2)] == [Hits, Hits]


def test_tables_in_notebooks(encoder, index, result):
    for one in (encoder, index, index.search("a dog", k=3), result):
        page = one._repr_html_()
        assert page.startswith("<table>")
        assert page.endswith("</table>")
        assert len(page) < 10_000
        assert "<b>" not in page
    assert result.verdict in result._repr_html_()
    assert "&lt;b&gt;" in index._repr_html_()


@pytest.mark.slow
def test_an_evaluation_is_a_frame_and_a_plot(encoder, result):
    frame = result.to_pandas()
    assert frame["name"].tolist() == [row.name for row in result.rows]
    assert frame["spearman"].tolist() == [row.scores["spearman"] for row in result.rows]
    assert frame["spearman_low"].tolist() == [row.intervals["spearman"].low for row in result.rows]
    loss = evaluate(encoder, TEXTS, bytes=[4, 8], resamples=50)
    for one in (result, loss):
        axes = one.plot()
        assert [label.get_text() for label in axes.texts] == [row.name for row in one.rows]
        assert axes.get_ylabel()
        points = [container.lines[0].get_xydata()[0].tolist() for container in axes.containers]
        assert points == [[row.bytes, row.scores[one.measure]] for row in one.rows if row.bytes is not None]


def test_what_is_missing_is_named(result, monkeypatch):
    import sys

    for module, call, extra in (("pandas", result.to_pandas, "data"), ("matplotlib.pyplot", result.plot, "train")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingDependencyError, match=rf"needs the package {module.split('.')[0]}.*\[{extra}\]"):
            call()
