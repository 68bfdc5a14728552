"""Writes first_version.tar.xz: folders of version 0.1, and what that version gave for them. Run by version 0.1 alone.

PYTHONPATH=CHECKOUT_OF_0.1 python first_version.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.search import build_index
from jaxwhiten.whitening import Whitening
from tests.tiny import SENTENCES, write_model

D, N = 8, 200
KINDS = {
    "flat": ("faiss-flat", {"codes": "spectrum", "bytes": 3}),
    "flat-whitened": ("faiss-flat", {"codes": "spectrum", "bytes": 2, "whitening": 1.0}),
    "flat-int8": ("faiss-flat", {"codes": "int8"}),
    "flat-ubinary": ("faiss-flat", {"codes": "ubinary"}),
    "fast": ("faiss-fast", {"codes": "spectrum", "bytes": 3}),
    "fast-ubinary": ("faiss-fast", {"codes": "ubinary"}),
    "lists": ("faiss-ivf", {"codes": "spectrum", "bytes": 3, "nlist": 4, "nprobe": 2}),
    "jax": ("jax", {"codes": "spectrum", "bytes": 3}),
    "jax-rescored": ("jax", {"codes": "spectrum", "bytes": 2, "rescore": "int8"}),
    "jax-int8": ("jax", {"codes": "int8"}),
}


def main(folder):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N + 30, D)) @ (
        np.linspace(1, 0.3, D)[:, None] * np.linalg.qr(rng.standard_normal((D, D)))[0]
    )
    x = (x + 0.3).astype(np.float32)
    vectors, more, queries = x[:N], x[N : N + 20], x[N + 20 :]
    results = {"vectors": vectors, "more": more, "queries": queries}
    for name, (backend, options) in KINDS.items():
        if "whitening" in options:
            options = options | {"whitening": Whitening(gamma=options["whitening"]).fit(vectors)}
        index = build_index(vectors, backend, **options)
        index.save(folder / name)
        results[f"{name}.scores"], results[f"{name}.ids"] = index.search(queries, 10)
        index.add(more)
        results[f"{name}.more_scores"], results[f"{name}.more_ids"] = index.search(queries, 10)
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "max_positions": 16}
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    texts = [" ".join(rng.choice(words, 5)) for _ in range(300)]
    encoder = Encoder.from_pretrained(write_model(folder / "bert", **sizes), pooling="mean", engine="jax", tuned=False)
    small = encoder.shrink(texts, bytes=3)
    small.save(folder / "model")
    shutil.rmtree(folder / "bert")
    results["model.codes"] = np.asarray(small.encode(texts[:20]))
    results["model.vectors"] = small.without_code().encode(texts[:20])
    index = small.index(texts[:40], backend="jax")
    hits = index.search(texts[40:44], 5)
    results["model.ids"] = np.array([[hit.id for hit in found] for found in hits])
    results["model.scores"] = np.array([[hit.score for hit in found] for found in hits], np.float32)
    (folder / "texts.json").write_text(json.dumps(texts[:44]))
    code = SpectrumCode(bytes=3).fit(vectors)
    code.save(folder / "code.safetensors")
    results["code.codes"], results["code.mapped"] = np.asarray(code.encode(queries)), code.transform(queries)
    np.savez(folder / "results.npz", **results)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
        for lock in Path(name).rglob(".lock"):
            lock.unlink()
        shutil.make_archive("first_version", "xztar", name)
