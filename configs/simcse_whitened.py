"""Training after whitening: SimCSE through a whitening that is fitted anew as the encoder moves.

    make unsupervised   # this beside the others; alone, once its sentences are there:
    python -m train.sbert --config configs/simcse_whitened.py

The whitening is held within a run. `make unsupervised` makes three runs, each from the model of the one before, which
take together the steps of configs/simcse_small.py, to which it is compared with a whitening after it. The last
checkpoint is kept: STS-B dev without a whitening would choose by another aim.
Hardware, time and score: docs/training.md.
"""

from configs import simcse_small


def get_config():
    config = simcse_small.get_config()
    config.objective = "simcse_whitened"
    config.settings.fit_rows = 10_000  # sentences that the whitening is fitted on when the run begins
    config.steps = 34
    config.dev = ""
    config.output = "runs/unsupervised/simcse_whitened"
    return config
