"""What an index takes, it stores and answers as it was given."""

import importlib.util
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.search import build_index, load_index

WRITERS = [json, importlib.import_module("orjson")] if importlib.util.find_spec("orjson") else [json]  # the server's
VECTORS = np.eye(4, dtype=np.float32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DOCUMENTS = st.text(max_size=5) | st.just("one\ud800")  # a lone surrogate is U+FFFD, for the tokenizer, too
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def built(ids, texts, metadata):
    return build_index(VECTORS[:2], "jax", ids=ids, documents=texts, metadata=metadata)


def added(ids, texts, metadata):
    index = build_index(VECTORS[2:], "jax", ids=["x", "y"], documents=["x", "y"], metadata=[{}, {}])
    index.add(VECTORS[:2], ids=ids, documents=texts, metadata=metadata)
    return index


def updated(ids, texts, metadata):
    index = build_index(VECTORS[2:], "jax", ids=ids, documents=["x", "y"], metadata=[{}, {}])
    index.update(ids, VECTORS[:2], documents=texts, metadata=metadata)
    return index


DOORS = {"build_index": built, "Index.add": added, "Index.update": updated}
some_ids = st.lists(TEXT.filter(lambda id: id not in ("", "x", "y")), min_size=2, max_size=2, unique=True)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(DOORS)),
    some_ids,
    st.lists(DOCUMENTS, min_size=2, max_size=2),
    st.lists(st.dictionaries(TEXT, PLAIN, max_size=3), min_size=2, max_size=2),
)
def test_what_is_taken_comes_back(tmp_path_factory, door, ids, texts, metadata):
    index = DOORS[door](ids, texts, metadata)
    texts = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    folder = tmp_path_factory.mktemp("stored") / "index"
    index.save(folder)
    for each in (index, load_index(folder)):
        hits = [hits[0].record() for hits in each.hits(VECTORS[:2], 1)]
        found = [(hit["id"], hit["text"], hit["metadata"]) for hit in hits]
        assert found == list(zip(ids, texts, metadata, strict=True))
        for writer in WRITERS:
            assert json.loads(writer.dumps(hits)) == hits
