#!/usr/bin/env bash
# README's two commands on a new machine: Debian 13, which brings Python 3.13, in a folder of its own, with what pip
# resolves there on that day.
#
#   ci/new_system.sh [REQUIREMENT ...]
#   ci/new_system.sh --prepare           # only fetches the system
#
# A requirement, such as 'jax==0.11.2', is installed before the commands run, and kept. The folder is $NEW_SYSTEM, by
# default .cache/new-system; a second run reuses the system in it and makes everything else again. The exit status is 77
# where such a system cannot be made: without root, debootstrap or a Debian mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
folder=$(realpath -m "${NEW_SYSTEM:-.cache/new-system}")
mirror=${DEBIAN_MIRROR:-}

left_out() { echo "new system: left out: $*"; exit 77; }

[ "$(id -u)" = 0 ] || left_out "only root can make one"
[ -e /etc/debian_version ] || left_out "this is not Debian"
if ! [ -x "$folder/usr/bin/python3" ]; then
  if ! command -v debootstrap > /dev/null; then
    { apt-get update -q && apt-get install -yq debootstrap; } > /dev/null 2>&1 || left_out "debootstrap cannot be installed"
  fi
  [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(SITE)' 2> /dev/null | grep -m 1 '/debian/\?$') || true
  rm -rf "$folder"
  debootstrap --variant=minbase --include=ca-certificates,gcc,git,libc6-dev,make,python3-dev,python3-venv \
    trixie "$folder" "${mirror:-http://deb.debian.org/debian}" > "$folder.log" 2>&1 ||
    { tail -n 3 "$folder.log"; rm -rf "$folder"; left_out "Debian 13 cannot be fetched, see $folder.log"; }
fi
[ "${1:-}" != --prepare ] || exit 0

# The network of this machine, and the certificates that it trusts.
mkdir -p "$folder/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
for file in /etc/resolv.conf /etc/hosts; do if [ -e $file ]; then cp -L $file "$folder/etc/"; fi; done
rm -rf "$folder/root/jaxwhiten"
git clone -q . "$folder/root/jaxwhiten"

cat > "$folder/root/commands" << 'EOF'
set -uo pipefail
cd jaxwhiten && python3 --version
if [ $# -gt 0 ]; then
  # make installs what pyproject.toml lists over these, and keeps versions that it allows.
  python3 -m venv .venv && .venv/bin/python -m pip install --quiet "$@" || exit 1
fi
failed=
for target in demo test; do
  SECONDS=0
  if make $target > ../$target.log 2>&1; then outcome=passed; else outcome=FAILED failed=1; fi
  grep -E '^(FAILED|ERROR) |=+ .*(passed|failed|error|no tests ran).* =+$' ../$target.log | tail -n 40
  [ $outcome = passed ] || tail -n 15 ../$target.log
  echo "make $target: $outcome after $SECONDS s"
done
.venv/bin/python -m pip list 2> /dev/null | grep -iE '^(jax|jaxlib|flax|numpy|optax|orbax-checkpoint|transformers|faiss-cpu) '
[ -z "$failed" ]
EOF

# Mounts in a name space of their own, so that they are gone when the commands end.
unshare --mount --propagation private bash -c '
  mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && mount -t proc proc "$0/proc" || exit 77
  exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DEFAULT_TIMEOUT=180 PIP_ROOT_USER_ACTION=ignore \
    bash -c "cd && exec bash commands \"\$@\"" commands "$@"' "$folder" "$@"
