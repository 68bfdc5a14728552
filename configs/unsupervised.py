"""Four objectives without labels on an encoder that was not fine-tuned.

    experiments/unsupervised.sh   # all four with three seeds, scored on the seven tasks
    python -m train.sbert --config configs/unsupervised.py:tsdae   # one, once its sentences are there

12,800 sentences of Wikipedia once, which `experiments/unsupervised.sh` writes; the learning rate is from no paper, but
the same for all. STS-B dev chooses the checkpoint and nothing else. Three positives and batch 128 are WhitenedCSE's own
setting; TSDAE's decoder has one layer here, in the paper as many as the encoder.
Hardware, time and score: docs/evidence/training.md.
"""

from configs import simcse
from jaxwhiten.errors import unknown_name

SETTINGS = {
    "simcse": {"temperature": 0.05},
    "tsdae": {"deletion": 0.6, "layers": 1},  # share of the tokens that is deleted; of the decoder
    "ct": {"negatives": 7},  # for each sentence, other sentences of its batch
    "whitenedcse": {"temperature": 0.05, "group_size": 64, "shuffles": 3},
}


def get_config(objective="simcse"):
    if objective not in SETTINGS:
        raise unknown_name("objective", objective, SETTINGS)
    config = simcse.get_config()
    config.objective = objective
    config.settings = dict(SETTINGS[objective])
    config.model = "jaxwhiten-tiny"
    config.pooling = "mean"
    config.data.file = "runs/unsupervised/sentences.tsv"
    config.data.columns = ("text",)
    config.batch_size = 128
    config.buckets = 2
    config.learning_rate = 1e-4
    config.warmup = 0.1
    config.evaluate_every = 25
    config.output = f"runs/unsupervised/{objective}"
    return config
