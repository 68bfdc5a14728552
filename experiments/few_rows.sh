#!/usr/bin/env bash
# Codes and whitenings fitted on 20 documents and more, by encoder and corpus.
#
#   experiments/few_rows.sh [ARGUMENT ...]      further arguments of eval.few_rows
#
# needs  the data folder
# takes  1 h on two cores after experiments/codes.sh, whose vectors are kept
# feeds  docs/evidence/codes.md
#
# $ENCODERS and $TASKS are others, each a name, or NAME:MODEL and NAME:FILE; e5:FOLDER made the other runs.
. "$(dirname "$0")/setup.sh" cpu,data,eval data
encoders=${ENCODERS:-minilm:sentence-transformers/all-MiniLM-L6-v2}
for encoder in $encoders; do
  for data in ${TASKS:-mrpc pydocs wikipedia-7000 snli scifact:$JAXWHITEN_DATA_DIR/beir/scifact}; do
    python -m eval.few_rows --config configs/few_rows.py --config.model="${encoder#*:}" \
      --config.dataset="${data#*:}" "$@" --config.out="runs/few-rows/${encoder%%:*}-${data%%:*}"
  done
done
