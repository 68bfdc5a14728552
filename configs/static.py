"""Static encoders compared with model2vec's: seven STS tasks.

Command: `python -m eval.static --config configs/static.py --config.corpus=FOLDER_OF_TEXT`. The results are in
 docs/evidence/training.md.
"""

from configs.settings import Static


def get_config():
    return Static()
