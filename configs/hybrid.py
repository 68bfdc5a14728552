"""Vectors alone, words alone, and both: hybrid search by corpus, for float32 vectors and codes.

    python -m eval.hybrid --config configs/hybrid.py --config.dataset=DATA --config.out=runs/hybrid/minilm-NAME

DATA is mrpc, pydocs, rte, wikipedia-7000, DIR/beir/scifact or DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz;
`--config.engine=openvino` encodes faster. The table is in docs/evidence/search.md.
"""

from configs.settings import Hybrid


def get_config():
    return Hybrid()
