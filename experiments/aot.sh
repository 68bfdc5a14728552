#!/usr/bin/env bash
# The library's programs compiled for TPUs, or with `h100` for that GPU.
#
#   experiments/aot.sh [TARGETS]
#
# needs  no accelerator; an environment of its own, .venv-aot: where libtpu is, JAX looks for a TPU whenever it starts
# takes  most of an hour on two cores
# feeds  docs/evidence/accelerators.md, from docs/runs/aot/reports.jsonl
VENV=${VENV:-.venv-aot}
. "$(dirname "$0")/setup.sh" aot,train,test
if [[ ${1:-} == *h100* ]] && ! [ -e "$VENV/.gpu-compiler" ]; then
  # XLA's compiler for GPUs, as `jax[cuda12]` installs it, but for the libraries that only a GPU needs.
  version=$(python -c "import jax; print(jax.__version__)")
  python -m pip --disable-pip-version-check install --quiet --no-deps \
    "jax-cuda12-plugin==$version" "jax-cuda12-pjrt==$version" nvidia-cuda-nvcc-cu12 nvidia-cudnn-cu12
  touch "$VENV/.gpu-compiler"
fi
python -m tests.accelerators.aot --write ${1:+--targets "$1"} > /dev/null
