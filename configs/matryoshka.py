"""Vectors that can be cut: the MNR loss at several prefixes (Kusupati et al. 2022, section 3).

    python -m train.sbert --config configs/matryoshka.py

The trained alternative to reducing the dimension by whitening; compare the two at one k with eval.sts. Any other
objective takes the prefixes as well. Hardware, time and score: not run here (see configs/nli.py).
"""

from configs import nli_mnr


def get_config():
    config = nli_mnr.get_config()
    config.dims = (768, 512, 256, 128, 64)
    config.output = "runs/matryoshka"
    return config
