"""The demo on a tiny encoder and a few texts: its table holds the scores of `evaluate`, and its searches find texts."""

import pytest

import jaxwhiten
from eval import demo
from jaxwhiten.datasets import RetrievalData, from_pairs
from tests.sentences import generated


@pytest.fixture
def data() -> RetrievalData:
    texts = generated(400)
    return from_pairs("few", [(a, b, a, b, True) for a, b in zip(texts[:200], texts[200:], strict=True)])


def test_the_demo(tiny_model, data, tmp_path, monkeypatch, capsys):
    encoder = jaxwhiten.Encoder.from_pretrained(tiny_model, pooling="mean", max_length=48, tuned=True)
    model = str(encoder.save(tmp_path / "model"))
    for name, value in {"TUNED": model, "SIZES": (8, 4), "QUESTIONS": (data.queries[3],)}.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(demo, "load_pydocs", lambda: data)
    demo.main()
    output = capsys.readouterr().out
    rows = jaxwhiten.evaluate(encoder, data, bytes=(8, 4), resamples=10).rows
    for row in rows:
        assert f"{row.scores['ndcg_at_10']:.2f}" in output
    first = output.partition(f'"{data.queries[3]}"\n')[2].splitlines()[0]
    assert first.endswith(data.queries[3])
