"""The demo's search: an un-tuned encoder over the docstrings of Python's standard library, raw and whitened.

Command: `python -m eval.retrieval --config configs/demo_search.py` (`make demo` runs it). No data to fetch.
Seen on 2 CPU cores, float32, Python 3.11: 3,544 documents and 3,560 queries, MRR@10 0.0144 raw, whitened
0.2107 at k = 192 and 0.1714 at 128, 0.285 by TF-IDF.
"""

from configs import pydocs


def get_config():
    config = pydocs.get_config()
    config.model = "jaxwhiten-tiny"
    config.poolings = "first_last_avg"
    config.ks = "192,128"
    config.gamma = "1"
    config.baselines = "tfidf"
    config.out = "runs/demo-search"
    return config
