"""Vectors alone, words alone, and both: hybrid search and variants of its constants.

Command: `python -m eval.hybrid --config configs/hybrid.py --config.model=NAME --config.dataset=NAME`;
`experiments/hybrid.sh` runs encoders × corpora. The table is in docs/evidence/search.md.
"""

from configs.settings import Hybrid


def get_config():
    return Hybrid()
