"""Domain adaptation: masked language modelling of an encoder's own, continued on text of one's own.

    python -m train.mlm --config configs/mlm_adapt.py --config.model=FOLDER --config.data=TEXT

One epoch at a low rate (Gururangan et al. 2020, "Don't Stop Pretraining: Adapt Language Models to Domains and Tasks",
section 3). The encoder keeps its vocabulary and dropout. A checkpoint with the head of its pre-training goes on with
it; one without, such as a sentence encoder, gets a new one. Hardware, time and score: not run here.
"""

from configs import mlm_defaults


def get_config():
    config = mlm_defaults.get_config()
    config.model = "bert-base-uncased"
    config.learning_rate = 5e-5
    config.output = "runs/mlm-adapt"
    return config
