"""WhitenedCSE: SimCSE on vectors whitened in shuffled groups of columns (Zhuo et al. 2023).

    make unsupervised   # this beside the others; alone, once its sentences are there:
    python -m train.sbert --config configs/whitenedcse.py

Three positives and batch 128 are the authors' setting; a group must have fewer columns than the batch has rows.
Hardware, time and score: docs/training.md.
"""

from configs import simcse_small


def get_config():
    config = simcse_small.get_config()
    config.objective = "whitenedcse"
    config.settings.group_size = 64  # columns that are whitened together
    config.settings.shuffles = 3  # positives of each sentence
    config.output = "runs/unsupervised/whitenedcse"
    return config
