"""SimCSE on an encoder that nobody tuned, and what the configs tsdae, ct, whitenedcse and simcse_whitened share.

    make unsupervised   # all five with three seeds, scored on the seven tasks, raw and whitened; docs/training.md
    python -m train.sbert --config configs/simcse_small.py

12,800 sentences of Wikipedia once, which `make unsupervised` writes; the learning rate is that of no paper, but the
same for all. STS-B dev chooses the checkpoint and nothing else.
Hardware, time and score: docs/training.md.
"""

from configs import simcse


def get_config():
    config = simcse.get_config()
    config.model = "jaxwhiten-tiny"
    config.pooling = "mean"
    config.data.file = "runs/unsupervised/sentences.tsv"
    config.data.columns = ("text",)
    config.batch_size = 128
    config.buckets = 2
    config.learning_rate = 1e-4
    config.warmup = 0.1
    config.evaluate_every = 25
    config.output = "runs/unsupervised/simcse_small"
    return config
