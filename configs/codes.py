"""Quality against bytes: codes of 24, 48 and 96 bytes beside their peers, at equal bytes, by encoder and corpus.

    python -m eval.codes --config configs/codes.py --config.dataset=DATA --config.out=runs/tasks/minilm-NAME

DATA is mrpc, pydocs, wikipedia-7000, snli, DIR/beir/scifact, or DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz with
`--config.queries=0`; another encoder is `--config.model=jaxwhiten-tiny`. Seen: 2 hours on 2 CPU cores for 12 runs of
two encoders. The tables are in docs/evidence/codes.md.
"""

from configs.settings import Codes


def get_config():
    config = Codes()
    config.engine = "openvino"
    return config
