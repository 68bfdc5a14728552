"""Domain adaptation: continues an encoder's masked language modelling on the user's text.

    python -m train.mlm --config configs/mlm_adapt.py --config.model=FOLDER --config.data=TEXT

One epoch at a low rate (Gururangan et al. 2020, "Don't Stop Pretraining: Adapt Language Models to Domains and Tasks",
section 3). The encoder keeps its vocabulary and dropout. A checkpoint with the head of its pre-training keeps
it; one without, such as a sentence encoder, gets a new head. Hardware, time and score: not run here.
"""

from configs.settings import MLM


def get_config():
    config = MLM()
    config.model = "bert-base-uncased"
    config.learning_rate = 5e-5
    config.output = "runs/mlm-adapt"
    return config
