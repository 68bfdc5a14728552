"""`jaxwhiten-tiny`: an encoder from random weights, small enough for two cores and not tuned for similarity.

    python -m train.mlm --config configs/mlm_small.py --config.data=TEXT

5.3 million parameters: the default 4 layers of width 256, 10,000 tokens. Blocks of 64 tokens, because typical sentences
are shorter and shorter blocks are faster. No dropout: text that is seen once is not memorised. 16.4 million
tokens, a sixth of the text: the encoder is under-trained, as every page with its scores says. The loss stays near
6.4 for 2,500 steps and falls from there on, so more steps are worth their time.

Text: 782,235 paragraphs of the English Wikipedia. Hardware and time: 2 CPU cores, one hour at 4,549 tokens/s (the
median; partly shared with other work). Held out: loss 5.827 nats, accuracy 19.86 %.
"""

from configs.settings import MLM


def get_config():
    config = MLM()
    config.sizes.intermediate_size = 768
    config.sizes.max_positions = 64
    config.vocabulary.size = 10_000
    config.block_length = 64
    config.dropout = 0.0
    config.steps = 4_000
    config.learning_rate = 1e-3
    config.evaluate_every = 500
    config.save_every = 100
    config.export_dtype = "float16"
    config.output = "runs/mlm-small"
    return config
