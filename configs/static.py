"""Static encoders compared with model2vec's: seven STS tasks, a search, speed, size, and the effect of each step.

Command: `python -m eval.static --config configs/static.py --config.corpus=FOLDER_OF_TEXT --config.dataset=FILE`. The
results are in docs/evidence/static.md.
"""

from configs.settings import Static


def get_config():
    return Static()
