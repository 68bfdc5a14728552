#!/usr/bin/env bash
# Every row of BERT-whitening's two tables, for each of the paper's encoders with the dimension it is reduced to.
#
#   experiments/reproduce.sh [MODEL:DIMENSION ...]
#
# needs  a hub, and downloads encoders and data
# takes  not known: it was run on stand-ins only
# feeds  docs/evidence/whitening.md
#
# $STS_ARGS and $QUORA_ARGS are further arguments of the two programs, such as --config.tasks=STS-B.
. "$(dirname "$0")/setup.sh" cpu,data,eval
read -ra sts <<< "${STS_ARGS:-}"
read -ra quora <<< "${QUORA_ARGS:-}"
[ $# -gt 0 ] || set -- bert-base-uncased:256 bert-large-uncased:384 \
  sentence-transformers/bert-base-nli-mean-tokens:256 sentence-transformers/bert-large-nli-mean-tokens:384
for setting in "$@"; do
  model=${setting%:*} ks=0,${setting##*:} name=$(basename "${setting%:*}")
  python -m eval.sts --config.model="$model" --config.poolings=cls,first_last_avg --config.ks="$ks" \
    --config.out="runs/reproduce/sts-$name" "${sts[@]}"
  python -m eval.retrieval --config configs/quora.py --config.model="$model" --config.poolings=first_last_avg \
    --config.whitening=none,nli,target --config.ks="$ks" --config.backends=faiss-ivf \
    --config.out="runs/reproduce/quora-$name" "${quora[@]}"
done
