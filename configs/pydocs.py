"""Retrieval on real texts that every machine has: the docstrings of Python's standard library, no data to fetch.

Command: `python -m eval.retrieval --config configs/pydocs.py` (`make demo` ends with it). A docstring's first sentence
is the query, the rest is the document to find.
"""

from ml_collections import ConfigDict

from configs import quora


def get_config() -> ConfigDict:
    """One pooling, raw and whitened at 384, 256 and 128, and three searches to look at."""
    config = quora.get_config()
    config.update(
        {
            "dataset": "pydocs",
            "poolings": "mean",
            "whitening": "none,target",
            "ks": "384,256,128",
            "backends": "faiss-flat",
            "exact_queries": 0,
            "single_queries": 100,
            "examples": (
                "wait until another thread is done",
                "turn a string into a number",
                "delete a folder and everything in it",
            ),
            "out": "runs/pydocs",
        }
    )
    return config
