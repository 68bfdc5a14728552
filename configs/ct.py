"""Contrastive tension: two encoders that begin equal agree on a sentence and on no others (Carlsson et al. 2021).

    make unsupervised   # this beside the others; alone, once its sentences are there:
    python -m train.sbert --config configs/ct.py

Hardware, time and score: docs/training.md.
"""

from ml_collections import ConfigDict

from configs import simcse_small


def get_config():
    config = simcse_small.get_config()
    config.objective = "ct"
    config.settings = ConfigDict({"negatives": 7})  # for each sentence, other sentences of its batch
    config.output = "runs/unsupervised/ct"
    return config
