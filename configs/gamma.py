"""How much whitening a tuned encoder takes: γ from full whitening (1) to PCA (0), at full and at a third of the size.

Command: `python -m eval.sts --config configs/gamma.py --config.data_dir=DIR`. Another encoder: `--config.model=NAME`.
Seen on 2 CPU cores, float32, all seven tasks: the table is in docs/evidence/whitening.md.
"""

from configs import sts


def get_config():
    config = sts.get_config()
    config.poolings = "mean"
    config.whitening = "none,target"
    config.ks = "0,128"
    config.gamma = "1,0.5,0"
    config.out = "runs/gamma"
    return config
