#!/usr/bin/env bash
# What jaxwhiten-tiny learns from all-MiniLM-L6-v2, with three seeds, on the seven STS tasks.
#
#   experiments/distil.sh
#
# needs  the data folder
# takes  three trainings on two cores, of more than 7 minutes each, and 3 minutes for their scores
# feeds  docs/evidence/training.md
#
# $SEEDS and $TEXT (the file of text) may be others.
. "$(dirname "$0")/setup.sh" cpu,data,train data
text=${TEXT:-$JAXWHITEN_DATA_DIR/text/enwiki/enwiki-00.txt.gz}
for seed in ${SEEDS:-0 1 2}; do
  out=runs/distil-$seed
  python -m train.sbert --config configs/distil.py --config.data.file="$text" --config.seed="$seed" \
    --config.output="$out"
  python -m eval.sts --config configs/miniature.py --config.model="$out/model" --config.poolings=mean \
    --config.baselines= --config.ks=0 --config.out="$out-sts"
done
