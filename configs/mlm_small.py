"""An encoder that nobody tuned for similarity, from random weights, small enough for two cores: `jaxwhiten-tiny`.

    python -m train.mlm --config configs/mlm_small.py --config.data=TEXT

5.3 million parameters: the default 4 layers of width 256, 10,000 tokens. Blocks of 64 tokens, since the sentences it is
for are shorter, and the shorter block is the faster. No dropout: text seen once is not learned by heart. 16.4 million
tokens, a sixth of the text: an under-trained encoder, and said to be one wherever its scores are. The loss stays near
6.4 for 2,500 steps and falls from there on, so more steps are worth their time.

Text: 782,235 paragraphs of the English Wikipedia. Hardware and time: 2 CPU cores, one hour at 4,549 tokens/s (the
median; part of it beside other work). Held out: loss 5.827 nats, accuracy 19.86 %.
"""

from configs import mlm_defaults


def get_config():
    config = mlm_defaults.get_config()
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
