"""Cosine regression on STS-B, 4 epochs, best checkpoint on dev (Reimers and Gurevych 2019, section 4.2).

    JAXWHITEN_DATA_DIR=... python -m train.sbert --config configs/stsb.py

Hardware, time and score: not finished here yet.
"""

from ml_collections import ConfigDict

from configs import sbert_defaults


def get_config() -> ConfigDict:
    """The paper's recipe on an encoder small enough for two cores."""
    config = sbert_defaults.get_config()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.objective = "cosine"
    config.data.name = "STS-B"
    config.epochs = 4
    config.evaluate_every = 180
    config.output = "runs/stsb"
    return config
