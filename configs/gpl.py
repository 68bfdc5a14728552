"""Generative pseudo labelling: an encoder learns the margins of a cross-encoder on mined negatives, without labels.

    python -m train.sbert --config configs/gpl.py --config.data.file=PAIRS --config.settings.teacher=FOLDER

Wang et al. 2022, "GPL: Generative Pseudo Labeling for Unsupervised Domain Adaptation of Dense Retrieval", section 3.
PAIRS is a table of queries and passages they belong to; where the queries come from is not this program's to say. The
negatives are mined, unless a third column has them (`--config.data.columns="('query','positive','negative')"
--config.negatives=0`).

Seen in a small trial, seed 0, on 2 CPU cores most of whose time went to other work. Teacher: configs/cross_quora.py on
421 pairs of the first half of quora_dup_lower and 840 negatives (`--config.data.limit=800 --config.negatives=2
--config.max_length=48 --config.buckets=2`), 39 steps in 6.5 minutes. TRIPLES: 2,255 questions of the other half, none
in the test or the first half, each with two of the 8 nearest by the whitened jaxwhiten-tiny, by `mine_negatives`; no
label says which belongs to it. Student:
jaxwhiten-tiny, `--config.max_length=32 --config.batch_size=64 --config.learning_rate=2e-4 --config.buckets=1`, 35
steps in 9 minutes with the teacher's margins. docs/evidence/training.md has the MRR@10 before,
after and of a control.
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.objective = "margin_mse"
    config.settings["teacher"] = "runs/cross-quora/model"  # folder of the cross-encoder
    config.settings["scale"] = 20.0  # factor of the cosines, whose differences learn its margins
    config.data.columns = ("query", "positive")
    config.negatives = 3
    config.depth = 50
    config.batch_size = 32
    config.dev = ""  # an STS task, to keep the checkpoint that is best on its dev split
    config.test = ()
    config.evaluate_every = 0
    config.output = "runs/gpl"
    return config
