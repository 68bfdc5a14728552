"""Vectors on disk are those of `Encoder.encode`: computed once, for one setting alone, kept after a kill, mended."""

import shutil
import sqlite3

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten import Encoder
from jaxwhiten.encoding import store as store_module
from jaxwhiten.encoding.store import EmbeddingStore
from jaxwhiten.errors import InputError
from jaxwhiten.head import canonical
from jaxwhiten.terminal import interrupts
from jaxwhiten.text.tokenization import COUNTS
from jaxwhiten.views.view import together
from tests.tiny import SENTENCES, by_pooling, write_model

POOLINGS = ("mean", "cls", "last_avg")  # of which the first and the last are one


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def expected(encoder):
    """The vectors of each sentence by pooling."""
    return by_pooling(encoder, SENTENCES, POOLINGS)


class Counting:
    """Counts the texts that stores encode, in batches of two, after some of which something else may happen."""

    def __init__(self, monkeypatch, after=None, act=None):
        self.count, self.batches, self.after, self.act = 0, [], after, act
        monkeypatch.setattr(store_module, "together", self.together)

    def together(self, views, texts, block_size, batch_size, show_progress, keep):
        def counted(rows, vectors):
            keep(rows, vectors)
            self.batches.append(len(rows))
            if len(self.batches) == self.after:
                self.act()

        self.count += len(texts)
        return together(views, texts, block_size, 2, show_progress, counted)


def statement(folder, *words):
    """Changes the only file of a store as another program would."""
    (path,) = folder.glob("*.db")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(*words)
    connection.close()


CALLS = st.lists(
    st.tuples(
        st.lists(st.integers(0, len(SENTENCES) - 1), min_size=1, max_size=12),
        st.lists(st.sampled_from(POOLINGS), min_size=1, unique=True),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=CALLS)
def test_any_texts_in_any_order_have_their_vectors_and_are_encoded_once(encoder, expected, tmp_path_factory, calls):
    store, stored = EmbeddingStore(tmp_path_factory.mktemp("store")), set()
    with pytest.MonkeyPatch.context() as patch:
        counting = Counting(patch)
        for rows, poolings in calls:
            texts, asked = [SENTENCES[row] for row in rows], {canonical(name) for name in poolings}
            lacking = [name for name in asked if {(name, row) for row in rows} - stored]
            new = {row for row in rows for name in lacking if (name, row) not in stored}
            before = counting.count
            found = store.encode(encoder, texts, pooling=poolings)
            assert counting.count - before == len(new)
            stored |= {(name, row) for name in asked for row in rows}
            again = store.encode(encoder, texts, pooling=poolings)
            assert counting.count - before == len(new)
            for name in poolings:
                assert (found[name].dtype, found[name].flags.writeable) == (np.float32, False)
                np.testing.assert_allclose(found[name], expected[name][rows], atol=1e-5)
                np.testing.assert_array_equal(again[name], found[name])


def test_every_space_has_its_own_file(encoder, tiny_model, tmp_path):
    store = EmbeddingStore(tmp_path / "store")
    other_weights = write_model(tmp_path / "other", seed=1)
    # JAX computes in bfloat16 on every CPU.
    in_bfloat16 = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, dtype="bfloat16", engine="jax")
    spaces = [
        (encoder, "mean"),
        (encoder, "cls"),
        (Encoder.from_pretrained(tiny_model, pooling="mean", max_length=8), "mean"),
        (in_bfloat16, "mean"),
        (Encoder.from_pretrained(other_weights, pooling="mean", max_length=32), "mean"),
    ]
    for each, pooling in spaces:
        found = store.encode(each, SENTENCES, pooling=pooling)
        np.testing.assert_allclose(found, each.encode(SENTENCES, pooling=pooling), atol=1e-2)
    same = shutil.copytree(tiny_model, tmp_path / "copy")
    store.encode(Encoder.from_pretrained(same, pooling="mean", max_length=32), SENTENCES)
    assert len(list((tmp_path / "store").iterdir())) == len(spaces)


def test_texts_that_were_cut_are_counted_whatever_is_stored(tiny_model, tmp_path):
    short = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=6)
    texts = [*SENTENCES, *SENTENCES[:4]]

    def counts(encode):
        COUNTS.clear()
        encode(texts)
        return dict(COUNTS)

    def stored(texts):
        return EmbeddingStore(tmp_path).encode(short, texts)

    expected = counts(short.encode)
    EmbeddingStore(tmp_path).encode(short, SENTENCES[3:5])
    assert counts(stored) == counts(stored) == expected


def ctrl_c():
    raise KeyboardInterrupt


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_ctrl_c_keeps_the_batches_that_are_done_and_says_so(encoder, expected, tmp_path, monkeypatch, capsys, seconds):
    """They are written every few seconds, and at Ctrl-C."""
    monkeypatch.setattr(store_module, "_SECONDS", seconds)
    store, dying = EmbeddingStore(tmp_path), Counting(monkeypatch, 3, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        store.encode(encoder, SENTENCES, pooling=("mean", "cls"))
    done = sum(dying.batches)
    assert 0 < done < len(SENTENCES)
    assert interrupts.kept == f"{done} of 10 texts are encoded, and the same command resumes there"
    counting = Counting(monkeypatch)
    found = store.encode(encoder, SENTENCES, pooling=("mean", "cls"))
    assert counting.count == len(SENTENCES) - done
    assert capsys.readouterr().err == f"note: resumed: {done} of 10 texts were encoded before\n"
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    assert not interrupts.kept


def test_what_a_kill_leaves_is_resumed(encoder, expected, tmp_path, monkeypatch):
    """What is on the disk after some batches is what `kill -9` leaves."""
    monkeypatch.setattr(store_module, "_SECONDS", 0)
    store = EmbeddingStore(tmp_path / "store")
    first = Counting(monkeypatch, 3, lambda: shutil.copytree(store.folder, tmp_path / "left"))
    store.encode(encoder, SENTENCES)
    counting = Counting(monkeypatch)
    found = EmbeddingStore(tmp_path / "left").encode(encoder, SENTENCES)
    assert counting.count == len(SENTENCES) - sum(first.batches[:3])
    np.testing.assert_allclose(found, expected["mean"], atol=1e-5)


THIRD = "(SELECT {0} FROM vectors WHERE rowid = 3)"
CHANGES = {  # of a file, and how many vectors are made again
    "checksum": ("UPDATE vectors SET checksum = checksum + 1 WHERE rowid = 3", 1),
    "cut": ("UPDATE vectors SET data = substr(data, 2) WHERE rowid = 3", 1),
    "zeros": ("UPDATE vectors SET data = zeroblob(length(data)) WHERE rowid = 3", 1),
    "text": ("UPDATE vectors SET data = 'text' WHERE rowid = 3", 1),
    "places": (f"UPDATE vectors SET (data, checksum) = {THIRD.format('data, checksum')} WHERE rowid = 2", 1),
    "no header": ("DROP TABLE header", None),
    "another space": ("UPDATE header SET key = 'other'", None),
    "no vectors": ("DROP TABLE vectors", None),
    "half a file": (lambda data: data[: len(data) // 2], None),
    "no SQLite file": (lambda data: b"text" * 1000, None),
    "its first page": (lambda data: data[:100] + bytes(3000) + data[3100:], None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_damaged_is_reported_once_and_made_again(encoder, expected, tmp_path, monkeypatch, change):
    store, counting, (how, made) = EmbeddingStore(tmp_path), Counting(monkeypatch), CHANGES[change]
    store.encode(encoder, SENTENCES)
    (path,) = tmp_path.iterdir()
    path.write_bytes(how(path.read_bytes())) if callable(how) else statement(tmp_path, how)
    with pytest.warns(UserWarning, match=r"damaged (embeddings|vectors?).*: recomputing") as warned:
        found = store.encode(encoder, SENTENCES)
    assert len(warned) == 1
    assert made is None or counting.count == len(SENTENCES) + made
    np.testing.assert_allclose(found, expected["mean"], atol=1e-5)
    before = counting.count
    np.testing.assert_array_equal(store.encode(encoder, SENTENCES), found)
    assert counting.count == before


def test_the_folder_may_be_removed_at_any_time(encoder, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_SECONDS", 0)
    store = EmbeddingStore(tmp_path / "store")
    counting = Counting(monkeypatch, 2, lambda: shutil.rmtree(store.folder))
    for _ in range(2):
        np.testing.assert_allclose(store.encode(encoder, SENTENCES), expected["mean"], atol=1e-5)
    assert len(counting.batches) > 4


@pytest.mark.parametrize(("texts", "pooling", "words"), [([], "mean", "No sentences"), (["a"], [], "empty")])
def test_what_cannot_be_encoded_is_refused(encoder, tmp_path, texts, pooling, words):
    with pytest.raises(InputError, match=words):
        EmbeddingStore(tmp_path).encode(encoder, texts, pooling=pooling)
    assert not list(tmp_path.iterdir())
