"""Every setting of train.cross with its default; the other experiments in this folder change some of them.

All other settings are train.sbert's, with the same meaning (configs/sbert_defaults.py).
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    for name in ("pooling", "objective", "settings", "teacher", "lora", "adapter", "matryoshka"):
        del config[name]
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a folder or a hub id: an encoder, or a cross-encoder
    config.max_length = 128  # tokens of a pair, special tokens counted
    config.labels = "classes"  # classes, scores, or positives: all pairs belong together

    config.data.exclude = ""  # retrieval data (quora, mrpc, a file) none of whose texts is trained on

    config.batch_size = 32  # pairs, over all devices
    config.learning_rate = 5e-5  # the highest, after the warm-up
    config.dev = ""  # scored to find the best checkpoint: an STS task, or an NLI source; "" for none
    config.test = ()  # scored before and after: accuracy of classes, Spearman's correlation of scores
    config.evaluate_every = 0  # steps
    config.save_every = 200  # steps between further checkpoints
    config.output = "runs/cross"  # folder of checkpoints, logs, results and the model
    return config
