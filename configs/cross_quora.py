"""A cross-encoder that re-ranks duplicate questions: pairs that are duplicates, with negatives that an encoder mines.

    python -m train.cross --config configs/cross_quora.py --config.data.file=PAIRS --config.data.exclude=TEST

Pointwise, one sigmoid per pair (Nogueira and Cho 2019, "Passage Re-ranking with BERT", section 3). PAIRS is a table
with the columns question1 and question2, TEST a file in Quora's columns, none of whose questions is trained on.
Negatives are drawn from the 30 nearest questions that no chain of duplicates links.

Its searches, here of all-MiniLM-L6-v2; of `jaxwhiten-tiny` with `--config.poolings=first_last_avg` and
`--config.whitening=target`, and of MRPC with `--config.dataset=mrpc`:

    python -m eval.retrieval --config.dataset=TEST --config.poolings=mean --config.whitening=none --config.ks=0 \\
      --config.backends=jax --config.max_length=64 --config.exact_queries=100 --config.rerank=runs/cross-quora/model \\
      --config.rerank_depth=30 --config.rerank_queries=500 --config.out=runs/rerank/quora-minilm-0

Seen on 2 CPU cores shared with other work, float32, seeds 0 to 2, `--config.data.limit=5000 --config.negatives=2` on
quora_dup_lower and quora_dup_sae of the data folder: 2,718 pairs and 5,320 negatives
(seed 0), 251 steps in 2.5 to 4 minutes. It re-ranks the first 30 results for 500 queries: MRR@10 on Quora 0.7836
before and 0.7637 to 0.7766 after all-MiniLM-L6-v2, 0.7134 and 0.7617 to 0.7734 after the whitened jaxwhiten-tiny; on
MRPC 0.9261 and 0.9290 to 0.9335, 0.9296 and 0.9312 to 0.9341. docs/evidence/training.md has the intervals.
All pairs with three negatives, the settings below: not run here.
"""

from configs.settings import Cross


def get_config():
    config = Cross()
    config.labels = "positives"
    config.data.columns = ("question1", "question2")
    config.negatives = 3
    config.max_length = 64
    config.output = "runs/cross-quora"
    return config
