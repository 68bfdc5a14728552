"""TSDAE: a sentence without 60 % of its tokens is restored from its vector (Wang, Reimers and Gurevych 2021).

    make unsupervised   # this beside the others; alone, once its sentences are there:
    python -m train.sbert --config configs/tsdae.py

The decoder has one layer here, in the paper as many as the encoder.
Hardware, time and score: docs/training.md.
"""

from ml_collections import ConfigDict

from configs import simcse_small


def get_config():
    config = simcse_small.get_config()
    config.objective = "tsdae"
    config.settings = ConfigDict()  # of the objective
    config.settings.deletion = 0.6  # share of the tokens that is deleted
    config.settings.layers = 1  # of the decoder, copies of the encoder's last ones
    config.output = "runs/unsupervised/tsdae"
    return config
