"""An encoder that nobody tuned for similarity, from random weights, small enough for two cores.

    python -m train.mlm --config configs/mlm_small.py --config.data=TEXT

5.3 million parameters: 4 layers of width 256, 10,000 tokens. Blocks of 64 tokens, since the sentences it is for are
shorter, and the shorter block is the faster. No dropout: text seen once is not learned by heart. 61 million tokens.
Hardware, time and score: 2 CPU cores, 3.2 core-seconds a step of 8,192 tokens; not finished here yet.
"""

from ml_collections import ConfigDict

from configs import mlm_defaults


def get_config() -> ConfigDict:
    """A run of some hours on two cores; float16 weights of about 11 MB."""
    config = mlm_defaults.get_config()
    config.sizes.num_layers = 4
    config.sizes.hidden_size = 256
    config.sizes.num_heads = 4
    config.sizes.intermediate_size = 768
    config.sizes.max_positions = 64
    config.vocabulary.size = 10_000
    config.block_length = 64
    config.dropout = 0.0
    config.batch_size = 128
    config.steps = 7_500
    config.learning_rate = 1e-3
    config.evaluate_every = 500
    config.save_every = 100
    config.export_dtype = "float16"
    config.output = "runs/mlm-small"
    return config
