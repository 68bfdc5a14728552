"""Four objectives without labels on an encoder that was not fine-tuned: after the colon simcse, tsdae, ct, whitenedcse.

    python -m train.sbert --config configs/unsupervised.py:ct --config.seed=0
    python -m eval.sts --config configs/miniature.py --config.model=runs/unsupervised/ct/model --config.baselines= \\
      --config.poolings=mean,first_last_avg --config.ks=0 --config.out=runs/unsupervised/ct-0-sts

They learn from 12,800 sentences of Wikipedia once, every eighth of some length:

    { echo text; gzip -dc DIR/text/enwiki/enwiki-00.txt.gz | sed 's/\\([.!?]\\) \\([A-Z]\\)/\\1\\n\\2/g' |
      awk 'length > 40 && length < 200 && !/\\t/ && ++n % 8 == 0 && ++kept <= 12800' |
      sed 's/"/""/g; s/.*/"&"/'; } > runs/unsupervised/sentences.tsv

The learning rate is from no paper, but the same for all. STS-B dev chooses the checkpoint and nothing else. Three
positives and batch 128 are WhitenedCSE's own setting; TSDAE's decoder has one layer here, in the paper as many as the
encoder. Hardware, time and score: docs/evidence/training.md.
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
