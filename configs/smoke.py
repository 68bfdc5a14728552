"""Everything once, small: 60 steps of softmax on SNLI rows, scored on the dev split of SICK-R.

    JAXWHITEN_DATA_DIR=... python -m train.sbert --config configs/smoke.py

Seen on 2 CPU cores, float32, seed 0: 130 seconds on a busy machine, compiling included; loss 1.099 (mean of the first
ten steps) to 1.062 (of the last ten). It shows that everything runs, the verdict included: SICK-R dev goes from 79.80
to 70.14, as 60 steps of softmax do not help an encoder that is tuned for similarity already, and the run says so.
"""

from configs.settings import SBERT


def get_config():
    config = SBERT()
    config.model = "sentence-transformers/all-MiniLM-L6-v2"
    config.max_length = 64
    config.data.sources = ("snli_dev_test",)
    config.data.exclude_overlap = False
    config.data.limit = 2000
    config.buckets = 2
    config.steps = 60
    config.learning_rate = 2e-4  # unit length, with which the folder ends, lets little gradient through
    config.dev = "SICK-R"
    config.test = ()
    config.evaluate_every = 30
    config.output = "runs/smoke"
    return config
