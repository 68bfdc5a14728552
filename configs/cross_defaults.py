"""Every setting of train.cross with its default; the other experiments in this folder change some of them.

All other settings are train.sbert's, with the same meaning (configs/sbert_defaults.py).
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    for name in ("pooling", "objective", "settings", "dims", "weights", "adapter", "adapter_rank"):
        del config[name]
    for name in [name for name in config if name.startswith(("lora", "teacher"))]:
        del config[name]
    config.model = (
        "sentence-transformers/all-MiniLM-L6-v2"  # a folder or a Hugging Face model ID: an encoder, or a cross-encoder
    )
    config.max_length = 128  # tokens of a pair, special tokens counted
    config.labels = "classes"  # classes, scores, or positives: all pairs belong together

    config.data.exclude = ""  # retrieval data (quora, mrpc, a file) none of whose texts is trained on

    config.batch_size = 32  # pairs, over all devices
    config.learning_rate = 5e-5
    config.dev = ""  # scored to find the best checkpoint: an STS task, or an NLI source; "" for none
    config.test = ()  # scored before and after: accuracy of classes, Spearman's correlation of scores
    config.evaluate_every = 0
    config.save_every = 200
    config.output = "runs/cross"  # folder of checkpoints, logs, results and the model
    return config
