"""The loss of unchanged and of whitened vectors in a spectrum code, against the best of them, by encoder and corpus.

    python -m eval.codes --config configs/regret.py --config.dataset=DATA --config.out=runs/regret/minilm-NAME

DATA is mrpc, pydocs, wikipedia-7000, snli or DIR/beir/scifact; another encoder is `--config.model=jaxwhiten-tiny`.
Seen: 5 minutes on 2 CPU cores for 10 runs after configs/codes.py, whose vectors are in the cache. The table is in
docs/evidence/whitening.md.
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
