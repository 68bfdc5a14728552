"""Embeddings on disk: read, not computed again; never for another setting; resumed after a kill; mended if damaged."""

import shutil

import numpy as np
import pytest

from jaxwhiten import Encoder, interrupts
from jaxwhiten.encoding import store as store_module
from jaxwhiten.encoding.store import EmbeddingStore
from jaxwhiten.errors import InputError
from jaxwhiten.text import text_fingerprint
from jaxwhiten.views.view import together
from tests.tiny import SENTENCES, write_model


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


class Counting:
    """Counts the sentences that stores encode, and can die after some."""

    def __init__(self, monkeypatch, die_after=None):
        self.count, self.die_after = 0, die_after
        monkeypatch.setattr(store_module, "together", self.together)

    def together(self, *arguments):
        for block in together(*arguments):
            rows = len(next(iter(block.values())))
            if self.die_after is not None and self.count + rows > self.die_after:
                raise KeyboardInterrupt
            self.count += rows
            yield block


def test_what_is_read_is_what_was_computed(encoder, tmp_path, monkeypatch):
    counting, store = Counting(monkeypatch), EmbeddingStore(tmp_path, shard_rows=4)
    first = store.encode(encoder, SENTENCES)
    second = store.encode(encoder, SENTENCES)
    assert counting.count == len(SENTENCES)
    np.testing.assert_allclose(first, encoder.encode(SENTENCES), atol=1e-5)
    np.testing.assert_array_equal(first, second)
    assert isinstance(second, np.memmap)
    assert not second.flags.writeable
    assert second.dtype == np.float32
    assert not list(tmp_path.rglob("shard-*"))


def test_shards_of_a_finished_array_are_removed(encoder, tmp_path):
    # A run killed between the sidecar and the removal of the shards leaves both.
    store = EmbeddingStore(tmp_path, shard_rows=4)
    whole = store.encode(encoder, SENTENCES)
    (folder,) = tmp_path.iterdir()
    np.save(folder / "shard-4-000000.npy", whole[:4])
    np.testing.assert_array_equal(store.encode(encoder, SENTENCES), whole)
    assert not list(tmp_path.rglob("shard-*"))


def test_several_poolings_take_one_pass_and_only_the_missing_are_computed(encoder, tmp_path, monkeypatch):
    counting, store = Counting(monkeypatch), EmbeddingStore(tmp_path, shard_rows=4)
    store.encode(encoder, SENTENCES, pooling="cls")
    both = store.encode(encoder, SENTENCES, pooling=("cls", "first_last_avg", "max"))
    assert counting.count == 2 * len(SENTENCES)
    assert set(both) == {"cls", "first_last_avg", "max"}
    expected = encoder.encode(SENTENCES, pooling=tuple(both))
    for name, array in both.items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5)
    store.encode(encoder, SENTENCES, pooling=tuple(both))
    assert counting.count == 2 * len(SENTENCES)


def test_two_names_of_one_pooling_are_one_entry(encoder, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path)
    store.encode(encoder, SENTENCES, pooling="mean")
    counting = Counting(monkeypatch)
    assert set(store.encode(encoder, SENTENCES, pooling=["last_avg"])) == {"last_avg"}
    assert counting.count == 0


def test_every_setting_has_its_own_entry(encoder, tiny_model, tmp_path):
    store = EmbeddingStore(tmp_path / "store")
    other_weights = write_model(tmp_path / "other", seed=1)
    # JAX computes in bfloat16 on every CPU.
    in_bfloat16 = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, dtype="bfloat16", engine="jax")
    settings = [
        (encoder, SENTENCES, "mean"),
        (encoder, SENTENCES, "cls"),
        (Encoder.from_pretrained(tiny_model, pooling="mean", max_length=8), SENTENCES, "mean"),
        (in_bfloat16, SENTENCES, "mean"),
        (Encoder.from_pretrained(other_weights, pooling="mean", max_length=32), SENTENCES, "mean"),
        (encoder, SENTENCES[::-1], "mean"),
        (encoder, [*SENTENCES[:-1], SENTENCES[-1] + "!"], "mean"),
        (encoder, SENTENCES[:-1], "mean"),
    ]
    for enc, sentences, pooling in settings:
        np.testing.assert_allclose(
            store.encode(enc, sentences, pooling=pooling), enc.encode(sentences, pooling=pooling), atol=1e-2
        )
    assert len(list((tmp_path / "store").iterdir())) == len(settings)


def test_the_same_weights_from_another_folder_share_the_entry(encoder, tiny_model, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path / "store")
    store.encode(encoder, SENTENCES)
    folder = shutil.copytree(tiny_model, tmp_path / "copy")
    counting = Counting(monkeypatch)
    store.encode(Encoder.from_pretrained(folder, pooling="mean", max_length=32), SENTENCES)
    assert counting.count == 0


def test_text_fingerprints_delimit_sentences():
    assert text_fingerprint(["ab", "c"]) != text_fingerprint(["a", "bc"])
    assert text_fingerprint(["a", ""]) != text_fingerprint(["a"])
    assert text_fingerprint(iter(["a", "b"])) == text_fingerprint(["a", "b"])


@pytest.mark.parametrize(("die_after", "left"), [(0, 7), (3, 4), (6, 1), (9, 1)])  # a block of one text has no batches
def test_an_interrupted_run_goes_on_where_it_stopped(encoder, die_after, left, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path, shard_rows=3)
    Counting(monkeypatch, die_after)
    with pytest.raises(KeyboardInterrupt):
        store.encode(encoder, SENTENCES, pooling=("mean", "cls"))
    counting = Counting(monkeypatch)
    found = store.encode(encoder, SENTENCES, pooling=("mean", "cls"))
    assert counting.count == left
    expected = encoder.encode(SENTENCES, pooling=("mean", "cls"))
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


def test_a_damaged_entry_is_reported_and_made_again(encoder, tmp_path):
    store = EmbeddingStore(tmp_path)
    expected = np.array(store.encode(encoder, SENTENCES))
    (array,) = tmp_path.rglob("embeddings.npy")
    data = bytearray(array.read_bytes())
    for damaged in (data[:-5], bytes(len(data)), data[:-1] + bytes([data[-1] ^ 1])):
        array.write_bytes(damaged)
        with pytest.warns(UserWarning, match="damaged embeddings"):
            again = store.encode(encoder, SENTENCES)
        np.testing.assert_allclose(again, expected, atol=1e-5)
    (sidecar,) = tmp_path.rglob("embeddings.json")
    sidecar.write_text("{}")
    with pytest.warns(UserWarning, match="damaged embeddings"):
        store.encode(encoder, SENTENCES)


def test_a_torn_shard_is_made_again(encoder, tmp_path, monkeypatch):
    store = EmbeddingStore(tmp_path, shard_rows=3)
    Counting(monkeypatch, 6)
    with pytest.raises(KeyboardInterrupt):
        store.encode(encoder, SENTENCES)
    shard = min(tmp_path.rglob("shard-*.npy"))
    shard.write_bytes(shard.read_bytes()[:-1])
    for part in tmp_path.rglob("part-*.npy"):
        part.write_bytes(part.read_bytes()[:-1])
    counting = Counting(monkeypatch)
    found = store.encode(encoder, SENTENCES)
    assert counting.count == len(SENTENCES) - 3
    np.testing.assert_allclose(found, encoder.encode(SENTENCES), atol=1e-5)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_ctrl_c_in_a_shard_keeps_its_batches_and_says_so(tiny_model, tmp_path, monkeypatch, capsys, seconds):
    """They are written every few seconds, and at Ctrl-C."""
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, engine="openvino")
    encoder.view.core.engine.layout.token_budget = 32
    monkeypatch.setattr(store_module, "_SECONDS", seconds)
    keep, batches = store_module._Shards.keep, []

    def interrupted(self, rows, vectors):
        keep(self, rows, vectors)
        batches.append(len(rows))
        if len(batches) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(store_module._Shards, "keep", interrupted)
    store = EmbeddingStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        store.encode(encoder, SENTENCES)
    done = sum(batches)
    assert 0 < done < len(SENTENCES)
    assert interrupts.kept == f"{done} of 10 texts are encoded, and the same command resumes there"
    assert len(list(tmp_path.rglob("part-*.npy"))) == (3 if seconds == 0 else 1)
    counting = Counting(monkeypatch)
    found = store.encode(encoder, SENTENCES)
    assert counting.count == len(SENTENCES) - done
    assert capsys.readouterr().err == f"note: resumed: {done} of 10 texts were encoded before\n"
    np.testing.assert_allclose(found, encoder.encode(SENTENCES), atol=1e-5)
    assert not list(tmp_path.rglob("part-*.npy"))
    assert not interrupts.kept


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
    with pytest.raises(InputError, match="shard_rows"):
        EmbeddingStore(tmp_path, shard_rows=0)
    assert not list(tmp_path.iterdir())
