#!/usr/bin/env bash
# What each whitening before a code costs, by encoder and corpus.
#
#   experiments/regret.sh [ARGUMENT ...]      further arguments of eval.codes
#
# needs  the data folder
# takes  5 minutes on two cores after experiments/codes.sh, whose vectors are kept
# feeds  docs/evidence/whitening.md
#
# $ENCODERS and $TASKS are others, each a name, or NAME:MODEL and NAME:FILE.
. "$(dirname "$0")/setup.sh" cpu,data,eval data
encoders=${ENCODERS:-minilm:sentence-transformers/all-MiniLM-L6-v2 tiny:jaxwhiten-tiny}
for encoder in $encoders; do
  for data in ${TASKS:-mrpc pydocs wikipedia-7000 snli scifact:$JAXWHITEN_DATA_DIR/beir/scifact}; do
    python -m eval.codes --config configs/regret.py --config.model="${encoder#*:}" --config.dataset="${data#*:}" \
      "$@" --config.out="runs/regret/${encoder%%:*}-${data%%:*}"
  done
done
