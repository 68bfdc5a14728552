"""From sentences to sentences."""

from jaxwhiten.search.text import without_blank


def test_texts_without_anything_to_read_are_blank():
    texts = ["a", " ", "\u200b", "\x00\x07 ", "\ufeff\u2060", "\u3164", "\u00ad\n", " .\u200b", "\U0001f600"]
    kept, ids, metadata, skipped = without_blank(texts, list(range(9)), [{"row": row} for row in range(9)])
    assert (kept, ids, skipped) == (["a", ".\u200b", "\U0001f600"], [0, 7, 8], 6)
    assert metadata == [{"row": row} for row in ids]
