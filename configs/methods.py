"""Every training-free method on one table: one encoder, seven STS tasks, all methods fitted on the same sentences.

Command: `python -m eval.sts --config configs/methods.py --config.data_dir=DIR`. Another encoder:
`--config.model=NAME --config.poolings=first_last_avg`. Whitening is target with γ = 1, PCA is target with γ = 0.
Seen on 2 CPU cores, float32, all seven tasks: 1 minute 54 seconds, 1.15 GB at the peak. Averages (wmean), mean pooling:
none 78.77, PCA, centring and z-score 78.82, BERT-flow 78.81, γ = 0.5 and all-but-the-top 78.24, shrunk whitening 76.37,
whitening 76.09; hubness reduction cost 4 points and more. Methods that gained nothing were removed.
"""

from configs import sts


def get_config():
    config = sts.get_config()
    config.poolings = "mean"
    config.whitening = "none,target"
    config.ks = "0"
    config.gamma = "1,0.5,0"
    config.methods = "shrunk-whitening,bert-flow"
    config.out = "runs/methods"
    return config
