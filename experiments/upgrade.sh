#!/usr/bin/env bash
# An index of old vectors searched with a new encoder's queries: three corpora, three upgrades.
#
#   experiments/upgrade.sh
#
# needs  the data folder, and isotrieve for its rows
# takes  10 minutes on two cores
# feeds  docs/evidence/upgrade.md
. "$(dirname "$0")/setup.sh" cpu,data,eval data
pairs=${PAIRS:-$JAXWHITEN_DATA_DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz}
encoders="jaxwhiten-tiny first_last_avg,jaxwhiten-tiny first_last_avg whitened"
encoders+=",sentence-transformers/all-MiniLM-L6-v2 mean,runs/minilm-static auto"
jaxwhiten distill --model sentence-transformers/all-MiniLM-L6-v2 -o runs/minilm-static/ --overwrite
for data in pydocs mrpc "quora:$pairs"; do
  python -m eval.upgrade --config.max_length=64 --config.dataset="${data#*:}" --config.out="runs/upgrade/${data%%:*}" \
    --config.encoders="$encoders" --config.kinds=ridge,procrustes,cca,isotrieve-ridge
done
