"""The demo's first half: the un-tuned encoder that ships with the package, where whitening helps.

Command: `python -m eval.sts --config configs/demo_untuned.py` (`make demo` runs it before `configs/demo.py`).
Seen on 2 cores: 5 seconds; 35.18 raw, 40.79 whitened at k = 64, 42.21 by TF-IDF (target, all: all pairs at once, as
`jaxwhiten.evaluate` and README score). 390 pairs are too few to call the difference more than chance;
`configs/demo_search.py` has 3,560 queries.
"""

from configs import demo


def get_config():
    config = demo.get_config()
    config.model = "jaxwhiten-tiny"
    config.poolings = "first_last_avg"
    config.ks = "64"  # of 256; 780 sentences support 78
    config.gamma = "1"
    config.baselines = "tfidf"
    config.out = "runs/demo-untuned"
    return config
