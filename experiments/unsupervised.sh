#!/usr/bin/env bash
# The objectives without labels beside whitening: each with three seeds, raw and whitened, on the seven STS tasks.
#
#   experiments/unsupervised.sh [OBJECTIVE ...]      by default simcse tsdae ct whitenedcse
#
# needs  the data folder
# takes  twelve trainings on two cores, and 30 minutes for their scores
# feeds  docs/evidence/training.md
#
# They learn from sentences of Wikipedia, every eighth of some length. $SEEDS, $SENTENCES (how many) and $TEXT (the
# file) may be others.
. "$(dirname "$0")/setup.sh" cpu,data,train data
text=${TEXT:-$JAXWHITEN_DATA_DIR/text/enwiki/enwiki-00.txt.gz}
[ $# -gt 0 ] || set -- simcse tsdae ct whitenedcse
mkdir -p runs/unsupervised
sentences() {
  gzip -dc "$text" | sed 's/\([.!?]\) \([A-Z]\)/\1\n\2/g' |
    awk -v most="${SENTENCES:-12800}" 'length > 40 && length < 200 && !/\t/ && ++n % 8 == 0 && ++kept <= most'
}
{ echo text; sentences | sed 's/"/""/g; s/.*/"&"/'; } > runs/unsupervised/sentences.tsv
for seed in ${SEEDS:-0 1 2}; do
  for name in "$@"; do
    out=runs/unsupervised/$name-$seed
    python -m train.sbert --config "configs/unsupervised.py:$name" --config.output="$out" --config.seed="$seed"
    python -m eval.sts --config configs/miniature.py --config.model="$out/model" \
      --config.baselines= --config.poolings=mean,first_last_avg --config.ks=0 --config.out="$out-sts"
  done
done
