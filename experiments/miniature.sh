#!/usr/bin/env bash
# The paper's tables on jaxwhiten-tiny, untuned and after NLI: STS and three retrieval tasks.
#
#   experiments/miniature.sh
#
# needs  the data folder
# takes  a quarter of an hour on two cores
# feeds  docs/evidence/whitening.md
. "$(dirname "$0")/setup.sh" cpu,data,train,eval data
pairs=${PAIRS:-$JAXWHITEN_DATA_DIR/pairs/quora_duplicates/quora_dup_sae.tsv.gz}
python -m eval.sts --config configs/miniature.py
python -m train.sbert --config configs/nli_small.py
python -m eval.sts --config configs/miniature.py --config.model=runs/nli-small/model --config.out=runs/miniature/nli
for setting in raw:jaxwhiten-tiny nli:runs/nli-small/model; do
  for data in mrpc pydocs "quora:$pairs"; do
    python -m eval.retrieval --config configs/quora.py --config.poolings=first_last_avg,layers:0 --config.backends=faiss-flat \
      --config.ks=0,128,64 --config.whitening=none,target,documents --config.model="${setting#*:}" --config.dataset="${data#*:}" \
      --config.out="runs/miniature/${setting%%:*}-${data%%:*}"
  done
done
