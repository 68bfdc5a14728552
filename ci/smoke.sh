#!/usr/bin/env bash
# Every benchmark once, on next to nothing, which shows only that everything runs. Results go to runs/smoke.
#
#   ci/smoke.sh [NAME ...]      by default all of `make bench`, in its order
#
# $VENV has what `make bench` installs. Each has one thread, since threads that wait for others would take much of the
# time, and a benchmark more than cores runs at a time, since servers, which come first, wait for a minute.
set -uo pipefail
cd "$(dirname "$0")/.."
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive JAXWHITEN_BENCHMARKS=runs/smoke
names=$(env -u BENCHMARKS make -s --no-print-directory --eval='names:; @echo $(BENCHMARKS)' names) || exit 2
[ -d "${JAXWHITEN_DATA_DIR:-}/text/enwiki" ] || names=${names/words/}
read -ra NAMES <<< "$names"
declare -A arguments=(
  [cold_start]="--rounds 1"
  [encode]="--model jaxwhiten-tiny --rounds 1 --tokens 400 --pairs 40 --texts short,mixed --base False"
  [growth]="--documents 2000 --peers FAISS"
  [latency]="--rounds 1 --queries 4 --documents 2000"
  [memory]="--model jaxwhiten-tiny --rows 2000 --sentences 200 --first 200 --lengths="
  [search_batches]="--documents 2000 --bytes 24 --rounds 1"
  [serving]="--seconds 0.5 --rounds 1 --clients 1,2 --model jaxwhiten-tiny"
  [serving_faults]="--seconds 5 --model jaxwhiten-tiny"
  [words]="--documents 2000 --queries 20 --warm 2"
  [whitening]="--rows 4000 --width 64 --rounds 1"
)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

smoke() { # NAME: prints what the benchmark wrote once it is done
  local log=$logs/$1 start=$SECONDS options
  read -ra options <<< "${arguments[$1]}"
  "${VENV:-.venv}/bin/python" -m "benchmarks.$1" "${options[@]}" > "$log" 2>&1 || touch "$logs/failed.$1"
  { echo "== $1, $((SECONDS - start)) s"; cat "$log"; }
}

[ $# -gt 0 ] || set -- "${NAMES[@]}"
for name in "$@"; do
  [ -n "${arguments[$name]:-}" ] || { echo "$name has no arguments here; these have: ${!arguments[*]}" >&2; exit 2; }
  while [ "$(jobs -rp | wc -l)" -gt "$(nproc)" ]; do wait -n; done
  smoke "$name" &
done
wait
failed=("$logs"/failed.*)
[ -e "${failed[0]}" ] || exit 0
echo "failed: ${failed[*]#"$logs"/failed.}" >&2
exit 1
