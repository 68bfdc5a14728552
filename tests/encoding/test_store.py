"""Vectors on disk are those of `Encoder.encode`: computed once, for one setting alone, kept after a kill, mended."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxwhiten import Encoder, interrupts
from jaxwhiten.encoding import store as store_module
from jaxwhiten.encoding.store import EmbeddingStore
from jaxwhiten.errors import InputError
from jaxwhiten.text.tokenization import COUNTS
from jaxwhiten.views.view import together
from tests.conftest import ONE_DEVICE
from tests.tiny import SENTENCES, write_model

ROOT = Path(__file__).resolve().parents[2]
POOLINGS = ("mean", "cls", "max")


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def expected(encoder):
    """The vectors of each sentence by pooling."""
    return encoder.encode(SENTENCES, pooling=POOLINGS)


class Counting:
    """Counts the texts that stores encode, in batches of two, and can die after some batches."""

    def __init__(self, monkeypatch, die_after=None):
        self.count, self.batches, self.die_after = 0, [], die_after
        monkeypatch.setattr(store_module, "together", self.together)

    def together(self, views, texts, block_size, batch_size, show_progress, keep):
        def counted(rows, vectors):
            keep(rows, vectors)
            self.batches.append(len(rows))
            if len(self.batches) == self.die_after:
                raise KeyboardInterrupt

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


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=CALLS)
def test_any_texts_in_any_order_have_their_vectors_and_are_encoded_once(encoder, expected, tmp_path_factory, calls):
    store, stored = EmbeddingStore(tmp_path_factory.mktemp("store")), set()
    with pytest.MonkeyPatch.context() as patch:
        counting = Counting(patch)
        for rows, poolings in calls:
            texts = [SENTENCES[row] for row in rows]
            lacking = [name for name in poolings if {(name, row) for row in rows} - stored]
            new = {row for row in rows for name in lacking if (name, row) not in stored}
            before = counting.count
            found = store.encode(encoder, texts, pooling=poolings)
            assert counting.count - before == len(new)
            stored |= {(name, row) for name in poolings for row in rows}
            again = store.encode(encoder, texts, pooling=poolings)
            assert counting.count - before == len(new)
            for name in poolings:
                np.testing.assert_allclose(found[name], expected[name][rows], atol=1e-5)
                np.testing.assert_array_equal(again[name], found[name])


def test_arrays_are_float32_and_read_only(encoder, tmp_path):
    store = EmbeddingStore(tmp_path)
    for texts in (SENTENCES, SENTENCES, SENTENCES[:3] * 2):
        found = store.encode(encoder, texts)
        assert (found.shape, found.dtype) == ((len(texts), encoder.dimension), np.float32)
        assert not found.flags.writeable


def test_only_missing_poolings_are_computed_in_one_pass(encoder, expected, tmp_path, monkeypatch):
    store, asked = EmbeddingStore(tmp_path), []
    store.encode(encoder, SENTENCES, pooling="cls")

    def seen(views, *how):
        asked.append(set(views))
        return together(views, *how)

    monkeypatch.setattr(store_module, "together", seen)
    found = store.encode(encoder, SENTENCES, pooling=POOLINGS)
    assert asked == [{"mean", "max"}]
    for name in POOLINGS:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


def test_two_names_of_one_pooling_are_one_file(encoder, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path)
    store.encode(encoder, SENTENCES, pooling="mean")
    counting = Counting(monkeypatch)
    assert set(store.encode(encoder, SENTENCES, pooling=["last_avg"])) == {"last_avg"}
    assert counting.count == 0


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
    assert len(list((tmp_path / "store").iterdir())) == len(spaces)


def test_the_same_weights_from_another_folder_share_the_file(encoder, tiny_model, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path / "store")
    store.encode(encoder, SENTENCES)
    folder = shutil.copytree(tiny_model, tmp_path / "copy")
    counting = Counting(monkeypatch)
    store.encode(Encoder.from_pretrained(folder, pooling="mean", max_length=32), SENTENCES)
    assert counting.count == 0


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


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_ctrl_c_keeps_the_batches_that_are_done_and_says_so(encoder, expected, tmp_path, monkeypatch, capsys, seconds):
    """They are written every few seconds, and at Ctrl-C."""
    monkeypatch.setattr(store_module, "_SECONDS", seconds)
    store, dying = EmbeddingStore(tmp_path), Counting(monkeypatch, die_after=3)
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


KILLED = """
import os, signal, sys
from jaxwhiten import Encoder
from jaxwhiten.encoding import EmbeddingStore, store
from jaxwhiten.views.view import together
from tests.tiny import SENTENCES
model, folder, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
store._SECONDS, batches = 0, []

def dying(views, texts, block_size, batch_size, show_progress, keep):
    def killed(rows, vectors):
        keep(rows, vectors)
        batches.append(len(rows))
        if len(batches) == last:
            print(sum(batches), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    return together(views, texts, block_size, 2, show_progress, killed)

store.together = dying
encoder = Encoder.from_pretrained(model, pooling="mean", max_length=32)
EmbeddingStore(folder).encode(encoder, SENTENCES)
"""


@pytest.mark.parametrize("last", [1, 4])
def test_another_process_resumes_after_a_kill(encoder, expected, tiny_model, tmp_path, monkeypatch, last):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tiny_model), str(tmp_path), str(last)],
        env={**os.environ, "XLA_FLAGS": ONE_DEVICE, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    counting = Counting(monkeypatch)
    found = EmbeddingStore(tmp_path).encode(encoder, SENTENCES)
    assert counting.count == len(SENTENCES) - int(done.stdout)
    np.testing.assert_allclose(found, expected["mean"], atol=1e-5)


@pytest.mark.parametrize(
    "damage",
    [
        "checksum = checksum + 1",
        "data = substr(data, 2)",
        "data = zeroblob(length(data))",
        "data = 'text'",
        "data = 5",
        "text = zeroblob(16)",
    ],
)
def test_a_damaged_vector_is_reported_and_made_again(encoder, expected, tmp_path, monkeypatch, damage):
    store, counting = EmbeddingStore(tmp_path), Counting(monkeypatch)
    store.encode(encoder, SENTENCES)
    statement(tmp_path, f"UPDATE vectors SET {damage} WHERE rowid = 3")
    if damage.startswith("text"):  # one that no text has
        found = store.encode(encoder, SENTENCES)
    else:
        with pytest.warns(UserWarning, match="1 damaged vector: recomputing") as warned:
            found = store.encode(encoder, SENTENCES)
        assert len(warned) == 1
    assert counting.count == len(SENTENCES) + 1
    np.testing.assert_allclose(found, expected["mean"], atol=1e-5)
    np.testing.assert_array_equal(store.encode(encoder, SENTENCES), found)
    assert counting.count == len(SENTENCES) + 1


def test_vectors_that_have_changed_places_are_made_again(encoder, expected, tmp_path):
    store = EmbeddingStore(tmp_path)
    store.encode(encoder, SENTENCES)
    third = "(SELECT {0} FROM vectors WHERE rowid = 3)"
    statement(
        tmp_path,
        f"UPDATE vectors SET data = {third.format('data')}, checksum = {third.format('checksum')} WHERE rowid = 2",
    )
    with pytest.warns(UserWarning, match="1 damaged vector"):
        np.testing.assert_allclose(store.encode(encoder, SENTENCES), expected["mean"], atol=1e-5)


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "no SQLite file": lambda data: b"text" * 1000,
    "its first page": lambda data: data[:100] + bytes(3000) + data[3100:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_reported_and_made_again(encoder, expected, tmp_path, damage):
    store = EmbeddingStore(tmp_path)
    store.encode(encoder, SENTENCES)
    (path,) = tmp_path.iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.warns(UserWarning, match=r"damaged (embeddings|vectors?).*: recomputing") as warned:
        found = store.encode(encoder, SENTENCES)
    assert len(warned) == 1
    np.testing.assert_allclose(found, expected["mean"], atol=1e-5)
    np.testing.assert_array_equal(store.encode(encoder, SENTENCES), found)


@pytest.mark.parametrize("change", ["DROP TABLE header", "UPDATE header SET key = 'other'", "DROP TABLE vectors"])
def test_a_file_of_another_space_is_not_read(encoder, expected, tmp_path, change):
    store = EmbeddingStore(tmp_path)
    store.encode(encoder, SENTENCES)
    statement(tmp_path, change)
    with pytest.warns(UserWarning, match="damaged embeddings"):
        np.testing.assert_allclose(store.encode(encoder, SENTENCES), expected["mean"], atol=1e-5)


def test_the_folder_may_be_removed_at_any_time(encoder, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_SECONDS", 0)
    store, counting = EmbeddingStore(tmp_path / "store"), Counting(monkeypatch)
    counting.batches = Removing(store.folder)
    for _ in range(2):
        np.testing.assert_allclose(store.encode(encoder, SENTENCES), expected["mean"], atol=1e-5)
    assert len(counting.batches) > 4


class Removing(list):
    """Removes a folder at the second batch."""

    def __init__(self, folder):
        self.folder = folder

    def append(self, rows):
        super().append(rows)
        if len(self) == 2:
            shutil.rmtree(self.folder)


def test_what_cannot_be_encoded_is_refused(encoder, tmp_path):
    store = EmbeddingStore(tmp_path)
    with pytest.raises(InputError, match="No sentences"):
        store.encode(encoder, [])
    with pytest.raises(InputError, match="Sentence 1: expected a str, got int"):
        store.encode(encoder, ["a", 3])
    with pytest.raises(InputError, match="empty list"):
        store.encode(encoder, ["a"], pooling=[])
    with pytest.raises(InputError, match="Unknown pooling"):
        store.encode(encoder, ["a"], pooling="meen")
    assert not list(tmp_path.iterdir())
