"""The paper's table in miniature: an encoder that was not tuned for similarity, raw and whitened.

Command: `experiments/miniature.sh` runs it on `jaxwhiten-tiny`, then on the same encoder after `configs/nli_small.py`,
and the three retrieval tables of each. Alone: `python -m eval.sts --config configs/miniature.py --config.data_dir=DIR`.
Seen on 2 CPU cores: this table 78 seconds, `experiments/miniature.sh` a quarter of an hour with the fine-tuning.
Averages (wmean), first_last_avg: 49.28 raw, 67.30 target and 63.24 nli at k = 256; after NLI 61.44, 68.11 and 64.57.
"""

from configs import sts


def get_config():
    config = sts.get_config()
    config.model = "jaxwhiten-tiny"
    config.poolings = "cls,mean,first_last_avg,layers:0"
    config.ks = "0,192,128,96,64,32"
    config.baselines = "tfidf,bm25"
    config.out = "runs/miniature/raw"
    return config
