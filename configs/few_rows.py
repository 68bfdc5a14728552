"""Codes and whitenings fitted on 20 documents and more, with and without shrinkage of the covariance.

Command: `python -m eval.few_rows --config configs/few_rows.py --config.model=NAME --config.dataset=NAME`;
`experiments/few_rows.sh` runs encoders × corpora. The tables are in docs/evidence/codes.md.
"""

from configs.settings import FewRows


def get_config():
    return FewRows()
