#!/usr/bin/env bash
# All that is measured on a GPU or TPU; peers run where they are installed.
#
#   experiments/accelerator.sh [cuda|cuda12|tpu|cpu]      by default cpu
#
# needs  the accelerator
# takes  less than ten minutes
# feeds  docs/evidence/accelerators.md
. "$(dirname "$0")/setup.sh" "${1:-cpu},data,train,test" weights
JAX_PLATFORMS= python -m benchmarks.accelerator
