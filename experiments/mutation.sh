#!/usr/bin/env bash
# Faults planted in six rooms of the library, and those that no test notices.
#
#   experiments/mutation.sh [ARGUMENT ...]      of ci/mutation.py, such as --faults 60 or --rooms codes,search
#
# needs  nothing
# takes  hours on two cores
# feeds  ci/mutation.json
. "$(dirname "$0")/setup.sh" cpu,data,train,test,mutation weights
python ci/mutation.py "$@"
