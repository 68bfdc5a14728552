"""Generative pseudo labelling: an encoder learns the margins of a cross-encoder on mined negatives, without labels.

    python -m train.sbert --config configs/gpl.py --config.data.file=TRIPLES --config.settings.teacher=FOLDER

Wang et al. 2022, "GPL: Generative Pseudo Labeling for Unsupervised Domain Adaptation of Dense Retrieval", section 3.
TRIPLES is a table of queries, passages they belong to, and negatives, see docs/reranking.md; where the queries come
from is not this program's to say. Hardware, time and score: not run here.
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.objective = "margin_mse"
    config.settings.teacher = "runs/cross-quora/model"  # folder of the cross-encoder
    config.settings.scale = 20.0  # factor of the cosines, whose differences learn its margins
    config.data.columns = ("query", "positive", "negative")
    config.batch_size = 32
    config.dev = ""  # an STS task, to keep the checkpoint that is best on its dev split
    config.test = ()
    config.evaluate_every = 0
    config.output = "runs/gpl"
    return config
