"""NLI first, then STS-B from the resulting model (Reimers and Gurevych 2019, section 4.2).

    python -m train.sbert --config configs/nli_stsb.py

`--config.stsb.epochs=8` changes one of the two runs. Hardware, time and score: not run here (see configs/nli.py).
Published: STS-B test 85.35 ± 0.17 for bert-base (Sentence-BERT, table 2, mean of 10 seeds).
"""

from configs import nli, stsb
from configs.settings import Stages


def get_config():
    config = Stages(nli.get_config(), stsb.get_config())
    config.nli.output = "runs/nli_stsb/nli"
    config.stsb.output = "runs/nli_stsb/stsb"
    config.stsb.model = "runs/nli_stsb/nli/model"
    return config
