"""Retrieval on real texts that need no download: the docstrings of Python's standard library.

Command: `python -m eval.retrieval --config configs/pydocs.py`. A docstring's first sentence is the query, the rest is
the document to find.
Seen on 2 CPU cores, float32, Python 3.11: 3,544 documents and 3,560 queries, MRR@10 0.3363 raw, whitened 0.3498 at
k = 384, 0.3499 at 192 and 0.3383 at 128, by PCA 0.3224 at 192; the number of texts depends on the version of Python.
"""

from configs import quora


def get_config():
    config = quora.get_config()
    config.dataset = "pydocs"
    config.poolings = "mean"
    config.whitening = "none,target"
    config.ks = "384,192,128"
    config.gamma = "1,0"  # whitened fully, and PCA
    config.backends = "faiss-flat"
    config.exact_queries = 0
    config.single_queries = 100
    config.out = "runs/pydocs"
    return config
