#!/usr/bin/env bash
# Adapters on Quora's duplicates beside full fine-tuning, each kind with its rate, for equal steps; then search among
# the questions held out.
#
#   experiments/adapters.sh [KIND:RATE:POOLING ...]
#
# needs  the data folder
# takes  twelve trainings on two cores, of 5 seconds to 2.6 minutes each, and 4 minutes for their scores
# feeds  docs/evidence/training.md
#
# $SEEDS may be others.
. "$(dirname "$0")/setup.sh" cpu,data,train,eval data
pairs=${PAIRS:-$JAXWHITEN_DATA_DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz}
[ $# -gt 0 ] || set -- full:2e-4:mean lora:2e-3:mean linear:1e-3:auto bottleneck:1e-3:auto

held_out() { # OUTPUT ARGUMENT...: of the run whose output is runs/adapter/KIND-SEED
  local run=$1
  shift
  python -m eval.retrieval --config configs/quora.py --config.backends=faiss-flat --config.ks=0 --config.max_length=32 \
    --config.dataset="$run/held_out.tsv" "$@"
}
for seed in ${SEEDS:-0 1 2}; do
  for setting in "$@"; do
    IFS=: read -r kind rate pooling <<< "$setting"
    out=runs/adapter/$kind-$seed
    python -m train.sbert --config "configs/adapter.py:$kind" --config.data.file="$pairs" --config.seed="$seed" \
      --config.learning_rate="$rate" --config.output="$out"
    held_out "$out" --config.model="$out/model" --config.poolings="$pooling" --config.out="$out-held-out"
  done
  held_out "runs/adapter/full-$seed" --config.model=jaxwhiten-tiny --config.poolings=mean \
    --config.out="runs/adapter/untuned-$seed"
done
