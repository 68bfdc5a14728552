#!/usr/bin/env bash
# Every BEIR folder below a folder, and the means as MTEB's leaderboard counts them.
#
#   experiments/beir.sh FOLDER [MODEL]      by default all-MiniLM-L6-v2
#
# needs  BEIR's folders
# takes  by their sizes
# feeds  docs/evidence/beir.md
[ -d "${1:-}" ] || { echo "usage: experiments/beir.sh FOLDER [MODEL]; FOLDER contains BEIR's folders" >&2; exit 2; }
folder=$(realpath "$1") model=${2:-sentence-transformers/all-MiniLM-L6-v2}
. "$(dirname "$0")/setup.sh" cpu,data,eval weights
python -m eval.beir "$folder" --model "$model" -o runs/beir.jsonl
