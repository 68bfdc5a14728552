"""Every setting of train.sbert with its default; the other experiments in this folder change some of them."""

from ml_collections import ConfigDict, config_dict


def get_config():
    config = ConfigDict()
    config.model = "bert-base-uncased"  # a folder or a hub id
    config.pooling = "auto"  # the folder's pooling and modules, or mean if it has none; or mean, cls, max
    config.max_length = 0  # tokens, special tokens counted; 0 is the folder's, or 128 if it has none
    config.dtype = "float32"  # or bfloat16: what matrix products run in; parameters stay float32
    config.remat = False  # recompute activations in the backward pass: less memory, more time

    config.objective = "softmax"  # a name in train/objectives.py
    config.settings = ConfigDict()  # of the objective, such as scale or temperature
    config.teacher = ConfigDict({"model": "", "pooling": "auto"})  # of the objectives distil_…: a folder or a hub id
    config.teacher.gamma = 0.0  # of the whitening that brings its vectors to the student's width; 0 is PCA
    config.lora = ConfigDict({"rank": 0})  # rank of the products trained instead of the encoder; 0 trains the encoder
    config.lora.projections = ("query", "value")  # also key, output, up, down, gate
    config.lora.alpha = 16.0  # the products are scaled by alpha / rank
    config.adapter = ConfigDict({"kind": ""})  # linear or bottleneck: trained on the frozen encoder's vectors
    config.adapter.rank = 8  # of a bottleneck
    config.matryoshka = ConfigDict({"dims": (), "weights": ()})  # prefixes of the vector that are trained too

    config.data = ConfigDict()
    config.data.name = "nli"  # nli, or an STS task with a train split (STS-B, SICK-R)
    config.data.folder = ""  # where the data lies; "" is $JAXWHITEN_DATA_DIR, or the downloads
    config.data.sources = ()  # files of the NLI data by name; () is all
    config.data.exclude_overlap = True  # leave out NLI lines that contain a sentence of an evaluation set
    config.data.file = ""  # a TSV, CSV, JSON-lines, Parquet or text file of your own, instead of a name
    config.data.columns = ()  # its columns of sentences, in the order the objective takes them
    config.data.split_sentences = False  # of a text file (.txt, .txt.gz, a folder of them), read without columns
    config.data.label = ""  # its column of classes or scores
    config.data.classes = ()  # the classes as written in the file
    config.data.score_range = (0.0, 5.0)  # the scores that become 0 and 1
    config.data.skip_bad_rows = False  # leave bad rows out and count them, instead of stopping
    config.data.held_out = 0.0  # share of pairs kept for a test, in held_out.tsv; no sentence is on both sides
    config.data.limit = 0  # rows drawn at random; 0 is all
    config.data.negatives = 0  # mined for each first sentence of pairs that belong together; they become triplets
    config.data.miner = "sentence-transformers/all-MiniLM-L6-v2"  # the encoder that finds them
    config.data.depth = 30  # nearest sentences that they are drawn from

    config.batch_size = 16  # rows, over all devices
    config.accumulate = 1  # parts a batch is worked through in
    config.buckets = 4  # padded lengths, each compiled once; 1 leaves batches unsorted by length
    config.epochs = 1  # times the data is seen
    config.steps = 0  # instead of epochs, if above 0
    config.optimizer = "adamw"  # or adam
    config.learning_rate = 2e-5  # the highest, after the warm-up
    config.warmup = 0.1  # share of the steps
    config.decay = "linear"  # or cosine, constant
    config.weight_decay = 0.01  # of adamw, not on norms and biases
    config.clip_norm = 1.0  # longest gradient; longer ones are scaled down
    config.seed = 0  # of the order of rows, dropout and new parameters

    config.dev = "STS-B"  # scored on its dev split to find the best checkpoint; "" for none
    config.test = ("STS-B",)  # scored on their test splits at the end
    config.evaluate_every = 1000  # steps
    config.save_every = 0  # steps between further checkpoints
    config.log_every = 10  # steps between lines of the log
    config.keep = 1  # latest checkpoints, besides the best
    config.progress = config_dict.placeholder(bool)  # None: a bar on a terminal
    config.output = "runs/sbert"  # folder of checkpoints, logs, results and the model
    return config
