"""Every setting of train.mlm with its default; the other experiments in this folder change some of them."""

from ml_collections import ConfigDict, config_dict

from configs import training_options


def get_config():
    config = training_options.get_config()
    for name in ("buckets", "settings", "dims", "weights", "negatives", "miner", "depth"):
        del config[name]
    for name in [name for name in config if name.startswith(("lora", "teacher"))]:
        del config[name]
    config.data = ""  # text, one passage per line, plain or gzip: a file, a folder, or a pattern with *
    config.skip_bad_rows = False  # skip and count lines that are not UTF-8 text, instead of stopping
    config.held_out = 0.01  # fraction of the passages to hold out

    config.model = ""  # a folder or a Hugging Face model ID to continue from; "" starts from random weights
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
    config.dropout = config_dict.placeholder(float)  # in this training; None: the model's own rates
    config.batch_size = 64  # blocks, over all devices
    config.learning_rate = 1e-4
    config.warmup = 0.05
    config.b2 = 0.98
    config.eps = 1e-6
    config.evaluate_every = 1000
    config.evaluate_blocks = 512  # held-out blocks scored while training; at the end it is all of them
    config.export_dtype = "float32"  # of the weights in the exported folder; or float16
    config.output = "runs/mlm"  # folder of checkpoints, logs, results and the model
    return config
