"""The loss of unchanged and of whitened vectors in a spectrum code on one search, against the best of them.

Command: `python -m eval.codes --config configs/regret.py --config.model=NAME --config.dataset=NAME`;
`experiments/regret.sh` runs encoders × corpora. The table is in docs/evidence/whitening.md.
"""

from configs import codes


def get_config():
    config = codes.get_config()
    config.codes = "spectrum"
    config.gamma = "none,0,0.25,0.5,1"
    config.seeds = 1
    config.rescore = 0
    config.bootstrap = 500
    config.out = "runs/regret"
    return config
