"""The demo's first half: the un-tuned encoder that ships with the package, where whitening helps.

Command: `python -m eval.sts --config configs/demo_untuned.py` (`make demo` runs it before `configs/demo.py`).
Seen on 2 cores: 5 seconds; 35.79 raw, 41.38 whitened at k = 64 (target, wmean).
"""

from configs import demo


def get_config():
    config = demo.get_config()
    config.model = "jaxwhiten-tiny"
    config.poolings = "first_last_avg"
    # Of 256; 780 sentences support no more than 78.
    config.ks = "64"
    config.out = "runs/demo-untuned"
    return config
