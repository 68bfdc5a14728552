"""Training of a static encoder: its rows learn the sentence vectors of the teacher it was distilled from, by gradients.

    jaxwhiten distil-static --model all-MiniLM-L6-v2 --corpus sentences.txt -o static/
    python -m train.sbert --config configs/static_train.py --config.model=static/ --config.data.file=sentences.txt

The file has a sentence per line; no label is used but STS-B's dev scores, which choose the checkpoint. `runs/…/model`
is a folder of sentence-transformers and model2vec, as the one it began with. What it adds is in docs/static.md.
"""

from configs import sbert_defaults


def get_config():
    config = sbert_defaults.get_config()
    config.model = "static"
    config.objective = "distil_cosine"
    config.teacher.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.teacher.gamma = 0.5  # of the whitening that its vectors are learned behind, as in `fit="rows"`
    config.data.file = "sentences.txt"
    config.max_length = 64  # of the teacher, too; the folder keeps its own
    config.batch_size = 256
    config.epochs = 3
    config.learning_rate = 1e-3
    config.weight_decay = 0.0
    config.evaluate_every = 78
    config.output = "runs/static-train"
    return config
