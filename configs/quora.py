"""Retrieval of duplicate questions on Quora, the paper's second experiment: quality, time and memory.

Command: `python -m eval.retrieval --config configs/quora.py --config.data_dir=DIR` with `quora_duplicate_questions.tsv`
in DIR (without a folder it is downloaded). `experiments/reproduce.sh` has the paper's rows. Lists are comma-separated.
Time and score: not run here (the file needs a network).
"""

from configs.settings import Retrieval


def get_config():
    return Retrieval()
