#!/usr/bin/env bash
# A small cross-encoder learns duplicates, none of whose questions is in what it re-ranks: the results of a tuned
# encoder and those of the untuned one, whitened; three seeds.
#
#   experiments/rerank.sh
#
# needs  the data folder
# takes  three trainings on two cores, of up to 4 minutes each, and 40 minutes for their scores
# feeds  docs/evidence/training.md
#
# $SEEDS may be others.
. "$(dirname "$0")/setup.sh" cpu,data,train data
folder=$JAXWHITEN_DATA_DIR/pairs/quora_duplicates
pairs=${PAIRS:-$folder/quora_dup_sae.tsv.gz} duplicates=${DUPLICATES:-$folder/quora_dup_lower.tsv.gz}
for seed in ${SEEDS:-0 1 2}; do
  cross=runs/cross-quora-$seed
  python -m train.cross --config configs/cross_quora.py --config.data.file="$duplicates" --config.seed="$seed" \
    --config.data.exclude="$pairs" --config.data.limit=5000 --config.negatives=2 --config.output="$cross"
  for data in "quora:$pairs" mrpc; do
    for encoder in minilm:mean:none:sentence-transformers/all-MiniLM-L6-v2 tiny:first_last_avg:target:jaxwhiten-tiny; do
      IFS=: read -r name pooling whitening model <<< "$encoder"
      python -m eval.retrieval --config.backends=jax --config.ks=0 --config.max_length=64 --config.rerank_depth=30 \
        --config.rerank_queries=500 --config.exact_queries=100 --config.dataset="${data#*:}" \
        --config.poolings="$pooling" --config.whitening="$whitening" --config.model="$model" \
        --config.rerank="$cross/model" --config.out="runs/rerank/${data%%:*}-$name-$seed"
    done
  done
done
