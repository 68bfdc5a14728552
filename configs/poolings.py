"""Every pooling on one table: the plain ones, those that need the encoder, and WhiteningBERT's grid of layer pairs.

Command: `python -m eval.sts --config configs/poolings.py --config.data_dir=DIR`. Another encoder:
`--config.model=NAME`; ditto's layer and head are the encoder's own (`ditto:0+9` for bert-base, by the paper).
Seen on 2 CPU cores shared with other work: 648 seconds; that run was not kept.
"""

from configs import sts


def get_config():
    config = sts.get_config()
    config.poolings = (
        "cls,mean,max,first_last_avg,embeddings_last_avg,last2avg,pooler,idf,promptbert,ditto:0+9,layers:*"
    )
    config.whitening = "none,target"
    config.ks = "0"
    config.out = "runs/poolings"
    return config
