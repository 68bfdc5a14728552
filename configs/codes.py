"""Quality against bytes: codes of 24, 48 and 96 bytes beside their peers, at equal bytes, on one search.

Command: `python -m eval.codes --config configs/codes.py --config.dataset=NAME`, for the names of eval/searches.py, a
file or a folder; `experiments/codes.sh` runs them all. The tables are in docs/evidence/codes.md.
"""

from configs.settings import Codes


def get_config():
    return Codes()
