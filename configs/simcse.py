"""Unsupervised SimCSE: a sentence under two dropouts is its own positive (Gao, Yao and Chen 2021, section 3).

    python -m train.sbert --config configs/simcse.py --config.data.file=sentences.txt --config.data.columns="('text',)"

The paper trains on 10^6 sentences of Wikipedia, batch 64, 3e-5, one epoch, max length 32, cls pooling. The file has a
header line that names its column; without a file, the distinct sentences of the NLI data are used.
Hardware, time and score: not run here (see configs/nli.py).
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.objective = "simcse"
    config.settings["temperature"] = 0.05  # divisor of the cosines in the softmax
    config.pooling = "cls"
    config.max_length = 32
    config.batch_size = 64
    config.learning_rate = 3e-5
    config.warmup = 0.0
    config.weight_decay = 0.0
    config.evaluate_every = 250
    config.output = "runs/simcse"
    return config
