"""Tasks on which layers of an encoder beat words alone: word order, pairs with few words in common, contradictions.

Command: `python -m eval.sts --config configs/order.py --config.data_dir=DIR`. The tasks are made from the STS tasks and
the NLI rows (`eval/probes.py`). Spearman × 100; `swapped` and `contradiction` have two grades, same or other meaning.
"""

from configs import sts


def get_config():
    config = sts.get_config()
    config.model = "jaxwhiten-tiny"
    config.poolings = "mean,first_last_avg"
    config.whitening = "none,target"
    config.ks = "0"
    config.tasks = "low-overlap,high-overlap,swapped,contradiction"
    config.baselines = "tfidf,tfidf-pieces,layer0"
    config.out = "runs/order/tiny"
    return config
