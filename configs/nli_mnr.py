"""Multiple negatives ranking on NLI triplets: a premise, an entailed hypothesis, a contradiction as hard negative.

    python -m train.sbert --config configs/nli_mnr.py

Model: bert-base-uncased, mean pooling, batch 128 over all devices (every row brings negatives for all others), scale
20. Hardware, time and score: not run here (see configs/nli.py).
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.objective = "mnr"
    config.settings["scale"] = 20.0  # factor of the cosines in the softmax
    config.batch_size = 128
    config.max_length = 64
    config.evaluate_every = 200
    config.output = "runs/nli_mnr"
    return config
