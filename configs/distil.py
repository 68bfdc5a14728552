"""Distillation: jaxwhiten-tiny learns the vectors of all-MiniLM-L6-v2, brought to its width by PCA.

    python -m train.sbert --config configs/distil.py --config.data.file=DIR/text/enwiki/enwiki-00.txt.gz

The file is any text, a line or a paragraph per line; its sentences are the data, and no label is used but STS-B's dev
scores, which choose the checkpoint.
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    config.model = "jaxwhiten-tiny"
    config.objective = "distil_listwise"
    config.teacher.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.data.file = "sentences.txt"
    config.data.split_sentences = True
    config.data.limit = 20_000
    config.max_length = 32
    config.batch_size = 64
    config.steps = 400
    config.learning_rate = 5e-4
    config.evaluate_every = 100
    config.output = "runs/distil"
    return config
