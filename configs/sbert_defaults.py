"""Every setting of train.sbert with its default; the other experiments in this folder change some of them.

The settings of the training itself, such as learning_rate, are those of `jaxwhiten.TrainingOptions`.
"""

from ml_collections import ConfigDict

from configs import training_options


def get_config():
    config = training_options.get_config()
    config.model = "bert-base-uncased"  # a folder or a Hugging Face model ID
    config.pooling = "auto"  # the folder's pooling and modules, or mean if it has none; or mean, cls, max
    config.max_length = 0  # tokens, special tokens included; 0 is the folder's, or 128 if it has none
    config.objective = "softmax"  # a name in train/objectives.py
    config.adapter = ""  # linear or bottleneck: trained on the frozen encoder's vectors, instead of the encoder
    config.adapter_rank = 8  # of a bottleneck

    config.data = ConfigDict()
    config.data.name = "nli"  # nli, or an STS task with a train split (STS-B, SICK-R)
    config.data.folder = ""  # location of the data; "" is $JAXWHITEN_DATA_DIR, or the downloads
    config.data.sources = ()  # files of the NLI data by name; () is all
    config.data.exclude_overlap = True  # skip NLI lines that contain a sentence of an evaluation set
    config.data.file = ""  # a TSV, CSV, JSON-lines, Parquet or text file of your own, instead of a name
    config.data.columns = ()  # its columns of sentences, in the order the objective takes them; () is usual names
    config.data.split_sentences = False  # of a text file (.txt, .txt.gz, a folder of them), read without columns
    config.data.label = ""  # its column of classes or scores
    config.data.classes = ()  # the classes as written in the file
    config.data.score_range = (0.0, 5.0)  # the scores that become 0 and 1
    config.data.skip_bad_rows = False  # skip and count invalid rows, instead of stopping
    config.data.held_out = 0.0  # share of pairs kept for a test, in held_out.tsv; no sentence is on both sides
    config.data.limit = 0  # rows drawn at random; 0 is all

    config.batch_size = 16  # Sentence-BERT's
    config.evaluate_every = 1000  # steps between evaluations; 0 for ten per run
    config.dev = "STS-B"  # scored on its dev split to find the best checkpoint; "" for none
    config.test = ("STS-B",)  # scored on their test splits at the end
    config.output = "runs/sbert"  # folder of checkpoints, logs, results and the model
    return config
