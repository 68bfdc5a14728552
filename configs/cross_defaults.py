"""Every setting of train.cross with its default; the experiments beside this file change some of them."""

from ml_collections import ConfigDict, config_dict

from configs import sbert_defaults


def get_config():
    config = ConfigDict()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"  # a folder or a hub id: an encoder, or a cross-encoder
    config.max_length = 128  # tokens of a pair, special tokens counted
    config.dtype = "float32"  # or bfloat16: what matrix products run in; parameters stay float32
    config.remat = False  # recompute activations in the backward pass: less memory, more time

    config.labels = "classes"  # classes, scores, or positives: all pairs belong together

    config.data = sbert_defaults.get_config().data  # name, folder, file, columns, label, classes and so on, as there
    config.data.exclude = ""  # retrieval data (quora, mrpc, a file) none of whose texts is trained on
    config.data.negatives = 0  # mined for each first sentence of pairs that belong together
    config.data.miner = "sentence-transformers/all-MiniLM-L6-v2"  # the encoder that finds them
    config.data.depth = 30  # nearest sentences that they are drawn from

    config.batch_size = 32  # pairs, over all devices
    config.accumulate = 1  # parts a batch is worked through in
    config.buckets = 4  # padded lengths, each compiled once; 1 leaves batches unsorted by length
    config.epochs = 1  # times the data is seen
    config.steps = 0  # instead of epochs, if above 0
    config.optimizer = "adamw"  # or adam
    config.learning_rate = 5e-5  # the highest, after the warm-up
    config.warmup = 0.1  # share of the steps
    config.decay = "linear"  # or cosine, constant
    config.weight_decay = 0.01  # of adamw, not on norms and biases
    config.clip_norm = 1.0  # longest gradient; longer ones are scaled down
    config.seed = 0  # of the order of rows, dropout, new parameters and negatives

    config.dev = ""  # scored to find the best checkpoint: an STS task, or an NLI source; "" for none
    config.test = ()  # scored before and after: accuracy of classes, Spearman's correlation of scores
    config.evaluate_every = 0  # steps
    config.save_every = 200  # steps between further checkpoints
    config.log_every = 10  # steps between lines of the log
    config.keep = 1  # latest checkpoints, beside the best
    config.progress = config_dict.placeholder(bool)  # None: a bar on a terminal
    config.output = "runs/cross"  # folder of checkpoints, logs, results and the model
    return config
