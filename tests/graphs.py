"""ONNX graphs run by ONNX Runtime, for the tests of more than one room."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.tiny import SENTENCES


def run(folder, sentences=SENTENCES, max_length=24, pad_id=0):
    """The vectors of a folder's graph, as a user of ONNX Runtime would write it; skips where that is not installed."""
    runtime = pytest.importorskip("onnxruntime")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding(pad_id=pad_id)
    encoded = tokenizer.encode_batch(sentences)
    session = runtime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    inputs = {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
    }
    return session.run(["sentence_embedding"], inputs)[0]
