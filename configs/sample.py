"""The 390 scored pairs that ship with the package, with real weights and no data to fetch.

Commands: `python -m eval.sts --config configs/sample.py`, and with `configs/sample.py:untuned` for README's quickstart
and picture. The sample was written for this project; it is not a benchmark.
Seen on 2 cores: 10 seconds; 74.31 raw, 70.61 whitened at full size, 75.12 by PCA at k = 128 (target, all). Un-tuned: 5
seconds; 35.18 raw, 40.79 whitened at k = 64, 42.21 by TF-IDF.
"""

from configs import sts


def get_config(encoder="tuned"):
    config = sts.get_config()
    config.poolings = "mean"
    config.whitening = "none,target"
    config.ks = "384,192,128"
    config.gamma = "1,0"  # whitened fully, and PCA
    config.tasks = "sts_sample"
    config.aggregate = "all"  # over all pairs at once, as `jaxwhiten.evaluate` scores
    config.out = "runs/sample"
    if encoder == "untuned":
        config.model = "jaxwhiten-tiny"
        config.poolings = "first_last_avg"
        config.ks = "64"  # of 256; 780 sentences support 78
        config.gamma = "1"
        config.baselines = "tfidf"
        config.out = "runs/demo-untuned"
    return config
