"""What each process of a job does in `test_distributed.py`: exchanges arrays, and writes down what it got.

`python exchange.py MODEL NLI_FOLDER OUT ADDRESS:PORT,INDEX,COUNT`
"""

import sys
from pathlib import Path

import numpy as np

from eval.data import load_nli
from eval.encoding import encode, nli_moments
from jaxwhiten import Encoder, Moments
from jaxwhiten.errors import MismatchError
from jaxwhiten.runtime import distributed
from jaxwhiten.whitening import merge_moments

SPECIAL = np.array([[0.0, -0.0, np.nan, np.inf, 1e-45, 3.4e38]], np.float32)
ROWS = 23


def sentences():
    return [f"sentence number {i} of some" for i in range(37)]


def rows_of(index, dtype):
    """Other numbers of rows in each process, none in the second."""
    n = 0 if index == 1 else 5 + 3 * index
    rows = np.random.default_rng(index).standard_normal((n, 2, 3)).astype(dtype)
    return rows if dtype != np.float32 else np.concatenate([rows, *[SPECIAL.reshape(1, 2, 3)] * (n > 0)])


def main(model, folder, out, address):
    distributed.start(address)
    index, count = map(int, address.split(",")[1:])
    arrays = {}
    distributed._CHUNK_BYTES = 100  # several exchanges, the last not full
    for dtype in (np.float32, np.float64, np.int64):
        arrays[np.dtype(dtype).name] = distributed.gather_rows(rows_of(index, dtype))
    arrays["nothing"] = distributed.gather_rows(np.empty((0, 4), np.float32))

    data = np.random.default_rng(7).standard_normal((ROWS, 6)) * 10.0 ** np.arange(6) + 1e3
    of_share = Moments().update(distributed.share(data)) if index != 1 else Moments()  # process 1 has no rows
    merged = merge_moments(of_share)
    arrays |= {"n": np.array(merged.n), "mean": merged.mean, "M2": merged.M2}

    encoder = Encoder.from_pretrained(model, pooling="mean", max_length=16)
    arrays["vectors"] = encode(encoder, sentences(), ("mean",))["mean"]
    moments = nli_moments(encoder, load_nli(folder, two_way="keep"), ("mean",))["mean"]
    arrays |= {"nli_n": np.array(moments.n), "nli_mean": moments.mean, "nli_M2": moments.M2}

    assert distributed.gather({"process": index, "text": "é" * index}) == [
        {"process": i, "text": "é" * i} for i in range(count)
    ]
    assert distributed.from_writer([index, 0.1]) == [0, 0.1]
    distributed.check_same("what is the same", [1, 2])
    for name, check in {
        "disagreement": lambda: distributed.check_same("the data", index == count - 1),
        "dimensions": lambda: merge_moments(Moments().update(np.ones((2, 3 + index)))),
        "shapes": lambda: distributed.gather_rows(np.ones((2, 3 + index), np.float32)),
    }.items():
        try:
            check()
            message = ""
        except MismatchError as error:
            message = str(error)
        arrays[name] = np.array(message)
    np.savez(Path(out) / f"{index}.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
