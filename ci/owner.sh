#!/usr/bin/env bash
# Puts the account of the repository into every link of README, documents, notebooks and messages.
#
#   ci/owner.sh NAME
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: ci/owner.sh NAME" >&2; exit 2; }
account=$(sed -n 's|^Repository = "https://github.com/\(.*\)/jaxwhiten"|\1|p' pyproject.toml)
git grep -lzE "github(\.com)?/$account/jaxwhiten" |
  xargs -0 sed -i -E "s#(github(\.com)?)/$account/jaxwhiten#\1/$1/jaxwhiten#g"
