# What every experiment begins with: `. experiments/setup.sh EXTRAS [data|weights ...]` installs the extras into .venv,
# or into $VENV, puts its commands first on the path, and stops where the data folder is needed and missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${VENV:-.venv}
make -s "$VENV/.installed-${1//,/-}" VENV="$VENV"
for need in "${@:2}"; do
  case $need in
    data)
      [ -d "${JAXWHITEN_DATA_DIR:-}" ] || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data" >&2; exit 2; }
      ;;
    weights) make -s "$VENV/.weights" VENV="$VENV" ;;
  esac
done
PATH=$(realpath "$VENV")/bin:$PATH
export PATH
