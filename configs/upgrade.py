"""Another encoder over an index: stay, map, fuse, embed what is read, or embed everything; every ordered pair.

Command: `python -m eval.upgrade --config configs/upgrade.py --config.dataset=FILE`;
`experiments/upgrade.sh` makes all runs. The results are in docs/evidence/upgrade.md.
"""

from configs.settings import Upgrade


def get_config():
    return Upgrade()
