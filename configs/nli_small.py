"""Sentence-BERT's softmax recipe on the small encoder of `configs/mlm_small.py`.

    JAXWHITEN_DATA_DIR=... python -m train.sbert --config configs/nli_small.py

The NLI rows of the data folder, without the lines that contain a sentence of an evaluation set. A small model on few
rows takes a higher rate and more epochs than the paper's.
Hardware, time and score: not run here yet.

References:
  Reimers and Gurevych 2019, "Sentence-BERT", section 3.1.
"""

from ml_collections import ConfigDict

from configs import mlm_small, nli


def get_config() -> ConfigDict:
    """The recipe of `nli.py` with other sizes and rates."""
    config = nli.get_config()
    config.model = f"{mlm_small.get_config().output}/model"
    config.max_length = 64
    config.batch_size = 32
    config.epochs = 3
    config.optimizer = "adamw"
    config.learning_rate = 1e-4
    config.evaluate_every = 200
    config.output = "runs/nli-small"
    return config
