"""The table of BERT-whitening on seven STS tasks: raw and whitened, at several dimensions, for one encoder.

Command: `python -m eval.sts --config.data_dir=DIR` (or `$JAXWHITEN_DATA_DIR`; without either the data is downloaded).
`experiments/reproduce.sh` has the paper's rows. Lists are comma-separated.
Seen on 2 CPU cores, float32, with all seven tasks and 35,163 NLI rows: 4 minutes 6 seconds in all, 1.34 GB at the
peak. Average of the seven tasks (wmean), mean pooling: 78.77 raw, 76.09 target, 75.43 nli at k = 384; cls pooling:
72.82 raw, 74.88 target. Not run here: the paper's encoders, which need a hub.
"""

from configs.settings import STS


def get_config():
    return STS()
