"""NLI first, then STS-B, on the small encoder that ships with the package: configs/nli_stsb.py where there is no hub.

    JAXWHITEN_DATA_DIR=... python -m train.sbert --config configs/nli_stsb_small.py

`--config.stages="('stsb',)" --config.stsb.model=jaxwhiten-tiny` is the control, STS-B alone; `eval.stages` gathers the
runs of several seeds. docs/evidence/training.md has the scores and the curves.
"""

from configs import nli_small, stsb
from configs.settings import Stages


def get_config():
    config = Stages(nli_small.get_config(), stsb.get_config())
    config.nli.epochs = 1
    config.nli.evaluate_every = 30
    config.nli.output = "runs/nli-stsb/nli"
    config.stsb.model = "runs/nli-stsb/nli/model"
    config.stsb.batch_size = 32
    config.stsb.steps = 90
    config.stsb.learning_rate = 2e-4
    config.stsb.evaluate_every = 30
    config.stsb.output = "runs/nli-stsb/both"
    return config
