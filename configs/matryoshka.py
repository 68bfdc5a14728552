"""Vectors that can be cut: the MNR loss at several prefixes (Kusupati et al. 2022, section 3).

    python -m train.sbert --config configs/matryoshka.py
    python -m eval.codes --config configs/codes.py --config.model=runs/matryoshka/model \
      --config.codes=spectrum,truncated --config.dataset=DATA --config.out=runs/tasks/matryoshka-NAME

The trained alternative to a code: the first 24, 48 or 96 columns, a byte each, against codes of the same vectors. DATA
as in configs/codes.py. What is trained is a matrix after the frozen encoder (Yoon et al. 2024, "Matryoshka-Adaptor"),
with `--config.adapter= --config.learning_rate=2e-5` the encoder. Any other objective takes the prefixes as well.
Seen on 2 shared CPU cores: 620 steps in 2.5 minutes, STS-B test 82.03 before, 81.26 after at full size.
"""

from configs import nli_mnr
from configs.settings import ENCODER


def get_config():
    config = nli_mnr.get_config()
    config.model = ENCODER
    config.adapter = "linear"
    config.dims = (384, 192, 96, 48, 24)
    config.epochs = 10
    config.learning_rate = 1e-3
    config.dev = ""  # the last step is kept: whole vectors, which a score would see, gain nothing
    config.output = "runs/matryoshka"
    return config
