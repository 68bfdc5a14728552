"""Every setting of train.mlm with its default; the other experiments in this folder change some of them."""

from ml_collections import ConfigDict, config_dict


def get_config():
    config = ConfigDict()
    config.data = ""  # text, one passage per line, plain or gzip: a file, a folder, or a pattern with *
    config.skip_bad_rows = False  # leave lines out that are not UTF-8 text and count them, instead of stopping
    config.held_out = 0.01  # share of the passages that is not trained on

    config.model = ""  # a folder or a hub id to continue from; "" starts from random weights
    config.sizes = ConfigDict()  # of an encoder with random weights
    config.sizes.model_type = "bert"  # family of the encoder
    config.sizes.num_layers = 4  # layers
    config.sizes.hidden_size = 256  # width of the vectors
    config.sizes.num_heads = 4  # attention heads of a layer
    config.sizes.intermediate_size = 1024  # width of the feed-forward part
    config.sizes.max_positions = 128  # longest input in tokens
    config.vocabulary = ConfigDict()  # trained where the model brings none
    config.vocabulary.size = 8192  # tokens of the vocabulary
    config.vocabulary.alphabet = 300  # characters kept, the most frequent
    config.vocabulary.min_frequency = 2  # how often a word piece occurs at least
    config.vocabulary.lower_case = True  # lower-case the text, as BERT's uncased vocabularies do

    config.block_length = 128  # tokens
    config.mask = ConfigDict()
    config.mask.share = 0.15  # of the tokens, in whole words
    config.mask.masked = 0.8  # of those: become [MASK]
    config.mask.random = 0.1  # of those: become a random token; the rest stay

    config.dtype = "auto"  # float32 on CPU, bfloat16 elsewhere; or one of the two
    config.remat = False  # recompute activations in the backward pass: less memory, more time
    config.dropout = config_dict.placeholder(float)  # in this training; None: the model's own rates
    config.batch_size = 64  # blocks, over all devices
    config.accumulate = 1  # parts a batch is worked through in
    config.epochs = 1  # times the data is seen
    config.steps = 0  # instead of epochs, if above 0
    config.optimizer = "adamw"  # or adam
    config.learning_rate = 1e-4  # the highest, after the warm-up
    config.warmup = 0.05  # share of the steps
    config.decay = "linear"  # or cosine, constant
    config.weight_decay = 0.01  # not on norms and biases
    config.b2 = 0.98  # Adam's second decay rate
    config.eps = 1e-6  # Adam's small constant
    config.clip_norm = 1.0  # longest gradient; longer ones are scaled down
    config.seed = 0  # of the order of rows, dropout and new parameters

    config.evaluate_every = 1000  # steps
    config.evaluate_blocks = 512  # held-out blocks looked at while training; at the end it is all of them
    config.save_every = 0  # steps between further checkpoints
    config.log_every = 10  # steps between lines of the log
    config.keep = 1  # latest checkpoints
    config.progress = config_dict.placeholder(bool)  # None: a bar on a terminal
    config.export_dtype = "float32"  # of the weights in the exported folder; or float16
    config.output = "runs/mlm"  # folder of checkpoints, logs, results and the model
    return config
