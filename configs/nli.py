"""Sentence-BERT's recipe: softmax classification on SNLI + MultiNLI (Reimers and Gurevych 2019, section 3.1).

    python -m train.sbert --config configs/nli.py

Model: bert-base-uncased, mean pooling, batch 16, Adam 2e-5, 10 % warm-up, linear decay, one epoch of AllNLI.
Hardware, time and score: not run here (the weights and SNLI train + MultiNLI need a machine with a hub).
Published: STS-B test 77.03; STS-B dev 80.78 for this concatenation (Sentence-BERT, tables 2 and 6).
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.optimizer = "adam"
    config.settings["concatenation"] = "(u,v,|u-v|)"  # what the classifier sees: u, v and |u-v|, joined by commas
    config.output = "runs/nli"
    return config
