#!/usr/bin/env bash
# `make test`, or `make $SUITE`, in other surroundings than this machine's: instructions, one core, caches, locale, folders, network.
#
#   ci/surroundings.sh [NAME ...]      by default all of them, one after the other
#
# A last table says what became of each. PYTEST_ARGS and VENV are those of the Makefile.
set -uo pipefail
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"
SUITE="${SUITE:-test}"
PYTEST_ARGS="${PYTEST_ARGS:--n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder}"
NAMES=(oldest avx2 one_core no_openvino cache_off cache_warm foreign)
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT

# NumPy's optional instructions, by the names of its version, that match a pattern.
numpy() {
  "$VENV/bin/python" -c "import re, sys
from numpy._core._multiarray_umath import __cpu_dispatch__ as names
print(*(name for name in names if re.search(sys.argv[1], name)))" "$1"
}

suite() { env "$@" make "$SUITE" VENV="$VENV" PYTEST_ARGS="$PYTEST_ARGS"; }

# The oldest instructions that each library can be told to use, and works with: in OpenVINO a node of the encoder, MVN,
# has no implementation where only oneDNN is told to use SSE4.1; XLA computes no float16 without the instructions of AVX.
oldest() {
  suite XLA_FLAGS=--xla_cpu_max_isa=AVX ONEDNN_MAX_CPU_ISA=AVX FAISS_OPT_LEVEL=generic \
    OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES="$(numpy .)"
}
# A processor with AVX2 and without AVX-512.
avx2() {
  suite XLA_FLAGS=--xla_cpu_max_isa=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 FAISS_OPT_LEVEL=avx2 OPENBLAS_CORETYPE=Haswell \
    NPY_DISABLE_CPU_FEATURES="$(numpy 'AVX512|V4')"
}
one_core() { taskset -c 0 make "$SUITE" VENV="$VENV" PYTEST_ARGS="$PYTEST_ARGS"; }
# As on a system for which OpenVINO has no wheel: `auto` is JAX.
no_openvino() {
  mkdir -p "$folder/without"
  cat > "$folder/without/sitecustomize.py" << 'END'
from importlib.machinery import PathFinder

every = PathFinder.find_spec


def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] == "openvino" else every(name, path, target)


PathFinder.find_spec = classmethod(find_spec)
END
  suite PYTHONPATH="$folder/without"
}
cache_off() { suite JAXWHITEN_COMPILATION_CACHE=0; }
# The second of two runs that share a cache.
cache_warm() {
  suite JAXWHITEN_CACHE_DIR="$folder/cache" JAXWHITEN_TEST_CACHE=keep > "$folder/first.log" 2>&1
  suite JAXWHITEN_CACHE_DIR="$folder/cache" JAXWHITEN_TEST_CACHE=keep
}
# A plain locale, a time zone ahead of all others, files that only their owner reads, a home that cannot be written to,
# a temporary folder with a space and 150 characters, no data, no network, and the files of tests in random order.
foreign() {
  local temporary left_out
  temporary="$folder/a folder $(printf 'x%.0s' {1..150})"
  mkdir -p "$temporary"
  (
    umask 077
    export LC_ALL=C TZ=Pacific/Apia HOME=/proc/none TMPDIR="$temporary" PYTHONHASHSEED=7
    unset JAXWHITEN_DATA_DIR LANG
    left_out=$(make -s --eval='left-out: ; @echo $(LABORATORY)' left-out)  # `make test` does without these
    PYTEST_ARGS="$PYTEST_ARGS $(find tests -name 'test_*.py' | grep -vE "^(${left_out// /|})" | sort |
      shuf --random-source=Makefile | tr '\n' ' ')"
    export PYTEST_ARGS
    unshare --net bash -c 'ip link set lo up 2> /dev/null || ifconfig lo up; make test VENV="$0" PYTEST_ARGS="$PYTEST_ARGS"' "$VENV"
  )
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${NAMES[@]}")
summary=() failed=
for name in "${names[@]}"; do
  case " ${NAMES[*]} " in *" $name "*) ;; *) echo "no surroundings $name; there are ${NAMES[*]}" >&2; exit 2 ;; esac
  start=$SECONDS
  "$name" 2>&1 | tee "$folder/$name.log" | grep -E '^(FAILED|ERROR|make: )|=+ .*(passed|failed|error).* =+$'
  [ "${PIPESTATUS[0]}" = 0 ] && outcome=passed || outcome=FAILED failed=1
  summary+=("$(printf '%-12s %-7s %4d s  %s' "$name" "$outcome" $((SECONDS - start)) \
    "$(grep -E '=+ .*(passed|failed|error).* =+$' "$folder/$name.log" | tail -n 1)")")
  echo "${summary[-1]}"
done
printf '%s\n' "${summary[@]}"
[ -z "$failed" ]
