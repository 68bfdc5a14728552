"""Codes and whitenings fitted on 20 documents and more, with and without shrinkage of the covariance.

Command: `python -m eval.few_rows --config configs/few_rows.py --config.model=NAME`; `experiments/few_rows.sh` makes
both runs. The table is in docs/evidence/codes.md.
"""

from configs.settings import FewRows


def get_config():
    return FewRows()
