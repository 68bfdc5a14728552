"""Several sentences in a row: every sentence once, the vectors of other layouts, and none that sees its neighbors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten import Encoder
from jaxwhiten.engines import batching, forward
from jaxwhiten.engines.batching import Layout
from jaxwhiten.models.attention import Fused
from jaxwhiten.text import TokenIds
from tests.sentences import generated
from tests.tiny import by_pooling, write_model

pytestmark = pytest.mark.devices

TEXTS = generated(150)


def test_rows_are_full_where_lengths_allow_it():
    lengths = np.random.default_rng(0).integers(8, 65, 20_000)
    _, row, _ = batching.fill_rows(lengths)
    assert lengths.sum() > 0.99 * 128 * (row[-1] + 1)


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 200), min_size=1, max_size=200),
    budget=st.sampled_from([512, 4096]),
    multiple=st.sampled_from([1, 2, 8]),
    max_rows=st.none() | st.integers(1, 40),
    long_rows=st.booleans(),
)
def test_batches_hold_every_sentence_and_its_tokens(lengths, budget, multiple, max_rows, long_rows):
    lengths = np.asarray(lengths, np.int64)
    tokens = TokenIds(np.arange(1, lengths.sum() + 1), lengths)
    batches = list(Layout(200, budget, multiple, share_rows=True, long_rows=long_rows).plan(lengths, max_rows))
    assert {b.length for b in batches if isinstance(b, batching.RowBatch)} <= ({128, 256} if long_rows else {128})
    assert not long_rows or all(isinstance(b, batching.RowBatch) for b in batches)
    np.testing.assert_array_equal(np.sort(np.concatenate([b.rows for b in batches])), np.arange(len(lengths)))
    for whole in batches:
        assert max_rows is None or len(whole.rows) <= max(max_rows, batching.SLOTS * multiple)
        for batch in (whole, *whole.halved(lengths, multiple)):
            ids, each = batch.arrays(tokens, 0)
            assert batch.height % multiple == 0
            assert ids.shape == (batch.height, batch.length)
            if each.ndim == 1:
                continue
            assert batch.tokens == ids.size
            starts = np.cumsum(each, axis=1) - each
            for number, (row, slot) in enumerate(zip(batch.row, batch.slot, strict=True)):
                start, sentence = starts[row, slot], batch.rows[number]
                found = ids[row, start : start + each[row, slot]]
                np.testing.assert_array_equal(found, tokens.flat[tokens.starts[sentence] :][: lengths[sentence]])
            assert (ids > 0).sum() == each.sum() == lengths[batch.rows].sum()


def test_without_shared_rows_the_plan_is_that_of_packed_batches():
    lengths = np.random.default_rng(0).integers(3, 65, 500)
    found = Layout(64, 1024, 2, share_rows=True).plan(lengths, segments=False)
    expected = Layout(64, 1024, 2).plan(lengths)
    for batch, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch.rows, other.rows)


@pytest.mark.slow
def test_long_rows_with_a_kernel_give_the_vectors_of_packed_batches(tmp_path, monkeypatch):
    folder = write_model(tmp_path, num_layers=1, max_positions=256)
    texts = ["  ".join(TEXTS[i : i + 20]) for i in range(5)] + TEXTS[:20]
    packed = Encoder.from_pretrained(folder, pooling="mean", max_length=256)
    monkeypatch.setattr(forward, "kernel_for", lambda *how: Fused(implementation="xla"))
    long = Encoder.from_pretrained(folder, pooling="mean", max_length=256)
    long.view.core.engine.layout.share_rows = True
    assert long.view.core.tokenizer(texts).lengths.max() > 128
    np.testing.assert_allclose(long.encode(texts), packed.encode(texts), atol=1e-5)


def test_shared_rows_give_the_vectors_of_packed_batches_which_poolings_of_whole_rows_keep(tiny_model):
    """On eight devices."""
    import eval.poolings  # noqa: F401 (adds its poolings)

    packed, shared = (Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32) for _ in range(2))
    assert not packed.view.core.engine.layout.share_rows
    shared.view.core.engine.layout.share_rows = True
    shared.view.core.engine.layout.token_budget = 8 * 512
    names = ("mean", "max", "cls", "ditto:1+2", "promptbert")
    assert not shared.view.with_pooling("ditto:1+2").head.by_segment
    found, expected = (by_pooling(encoder, TEXTS[:60], names) for encoder in (shared, packed))
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
