"""The paper's table in miniature: an encoder that was not tuned for similarity, raw and whitened, and then after NLI.

    python -m eval.sts --config configs/miniature.py
    python -m train.sbert --config configs/nli_small.py
    python -m eval.sts --config configs/miniature.py --config.model=runs/nli-small/model --config.out=runs/miniature/nli
    python -m eval.retrieval --config configs/quora.py --config.model=jaxwhiten-tiny --config.dataset=DATA \\
      --config.poolings=first_last_avg,layers:0 --config.whitening=none,target,documents --config.ks=0,128,64 \\
      --config.backends=faiss-flat --config.out=runs/miniature/raw-NAME

DATA is mrpc, pydocs or DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz. Seen on 2 CPU cores: the first table 78
seconds, all a quarter of an hour. Averages (wmean), first_last_avg: 49.28 raw, 67.30 target and 63.24 nli at k = 256;
after NLI 61.44, 68.11 and 64.57.
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
