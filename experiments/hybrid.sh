#!/usr/bin/env bash
# Vectors alone, words alone, and both, by corpus.
#
#   experiments/hybrid.sh [ARGUMENT ...]      further arguments of eval.hybrid
#
# needs  the data folder
# takes  10 min on two cores, and 5 to encode
# feeds  docs/evidence/search.md
#
# $ENCODERS and $TASKS are others, each a name, or NAME:MODEL and NAME:FILE.
. "$(dirname "$0")/setup.sh" cpu,data,eval data
encoders=${ENCODERS:-minilm:sentence-transformers/all-MiniLM-L6-v2}
for encoder in $encoders; do
  for data in ${TASKS:-mrpc pydocs wikipedia-7000 scifact:$JAXWHITEN_DATA_DIR/beir/scifact}; do
    python -m eval.hybrid --config configs/hybrid.py --config.model="${encoder#*:}" \
      --config.dataset="${data#*:}" "$@" --config.out="runs/hybrid/${encoder%%:*}-${data%%:*}"
  done
done
