#!/usr/bin/env bash
# Codes of 24, 48 and 96 bytes beside their peers on every task, fitted on the documents.
#
#   experiments/codes.sh [ARGUMENT ...]      further arguments of eval.codes
#
# needs  the data folder
# takes  2 h on two cores: 12 runs of two encoders
# feeds  docs/evidence/codes.md
#
# $ENCODERS and $TASKS are others, each a name, or NAME:MODEL and NAME:FILE.
. "$(dirname "$0")/setup.sh" cpu,data,eval data
quora=$JAXWHITEN_DATA_DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz scifact=$JAXWHITEN_DATA_DIR/beir/scifact
encoders=${ENCODERS:-minilm:sentence-transformers/all-MiniLM-L6-v2 tiny:jaxwhiten-tiny}
tasks=${TASKS:-quora:$quora mrpc pydocs wikipedia-7000 snli scifact:$scifact}
for encoder in $encoders; do
  for data in $tasks; do
    case $data in
      quora*) own=(--config.queries=0) ;;
      *) own=() ;;
    esac
    python -m eval.codes --config configs/codes.py --config.model="${encoder#*:}" --config.dataset="${data#*:}" \
      "${own[@]}" "$@" --config.out="runs/tasks/${encoder%%:*}-${data%%:*}"
  done
done
