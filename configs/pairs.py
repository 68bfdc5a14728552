"""Fine-tuning on pairs of your own: two columns of texts that belong together, all other rows being negatives.

    python -m train.sbert --config configs/pairs.py --config.data.file=pairs.tsv

Multiple negatives (Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", section
4.4). The table has a head line; `--config.data.columns="('question','answer')"` names its columns; a third one
holds hard negatives. docs/guides/fine-tune.md shows a run, docs/evidence/training.md the scores of others.
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.objective = "mnr"
    config.settings["scale"] = 20.0  # factor of the cosines in the softmax
    config.data.columns = ("anchor", "positive")
    config.batch_size = 64
    config.epochs = 3
    config.dev = ""  # an STS task, to keep the checkpoint that is best on its dev split
    config.test = ()
    config.evaluate_every = 0
    config.output = "runs/pairs"
    return config
