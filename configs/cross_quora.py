"""A cross-encoder that re-ranks duplicate questions: pairs that are duplicates, with negatives that an encoder mines.

    python -m train.cross --config configs/cross_quora.py --config.data.file=PAIRS --config.data.exclude=TEST

Pointwise, one sigmoid per pair (Nogueira and Cho 2019, "Passage Re-ranking with BERT", section 3). PAIRS is a table
with the columns question1 and question2, TEST a file in Quora's columns, none of whose questions is trained on.
Negatives are drawn from the 30 nearest questions that no chain of duplicates links.
"""

from configs import cross_defaults


def get_config():
    config = cross_defaults.get_config()
    config.labels = "positives"
    config.data.columns = ("question1", "question2")
    config.data.negatives = 3
    config.max_length = 64
    config.output = "runs/cross-quora"
    return config
