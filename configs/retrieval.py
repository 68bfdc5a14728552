"""A search of any kind, at the length of the model's folder: quality, time and memory.

Command: `python -m eval.retrieval --config.dataset=FILE`, with a file in Quora's columns or a folder as BEIR's. The
paper's experiment, at 64 tokens, is configs/quora.py. Lists are comma-separated.
"""

from configs import quora


def get_config():
    config = quora.get_config()
    config.max_length = 0  # tokens, special tokens counted; 0 for the model folder's own limit
    config.out = "runs/retrieval"
    return config
