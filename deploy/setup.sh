#!/bin/bash
# Installs what is missing: Debian packages, and Python ones and prometheus in .venv. Quick when all
# is there.
#
#   deploy/setup.sh             everything: product, tests, quickstart
#   deploy/setup.sh --product   without the oracles of the tests
#   deploy/setup.sh --long      everything, and what the long set of tests needs beside it
#
# SNUG_TORCH_DIR: a LibTorch elsewhere; then the torch wheel is not installed for the product (the
# oracles of the tests still bring one). Needs root, or sudo, only when a Debian package is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "not root and no sudo; as root, run: $*" >&2
    return 1
  fi
}

# Of what stdin lists.
missing_packages() {
  comm -23 <(grep -v '^#' | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u)
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} = 0 ] && return
  say "installing Debian packages: ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  as_root "${apt[@]}" update
  as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# The system's Python, not one that stands before it in PATH: the wheels are tested with that one.
make_venv() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  say "creating .venv"
  /usr/bin/python3 -m venv .venv
}

install_requirements() {
  local requirements=(deploy/requirements.txt)
  [ "$1" = --product ] || requirements+=(deploy/requirements-test.txt)
  local missing
  mapfile -t missing < <(.venv/bin/python deploy/check_pins.py "${requirements[@]}")
  if [ "$1" = --product ] && [ -n "${SNUG_TORCH_DIR:-}" ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | grep -v '^torch==' || true)
  fi
  [ -z "${missing[*]}" ] && return
  say "installing into .venv: ${missing[*]} (torch with its CUDA libraries: 4.6 GB on disk)"
  # All pins together, so that the resolver cannot move one to please another.
  .venv/bin/python -m pip install --disable-pip-version-check \
    "${requirements[@]/#/--constraint=}" "${missing[@]}"
}

# What tests use of Debian's prometheus, as programs alone: installed whole, that would serve on a
# port of this machine from now on.
install_prometheus() {
  [ -x .venv/bin/promtool ] && [ -x .venv/bin/prometheus ] && return
  say "taking prometheus and promtool from Debian's package prometheus"
  local folder
  folder=$(mktemp -d)
  (
    cd "$folder"
    apt-get -q download prometheus ||
      { as_root apt-get -q update && apt-get -q download prometheus; }
    dpkg-deb --extract prometheus_*.deb .
  )
  install "$folder"/usr/bin/{promtool,prometheus} .venv/bin
  rm -r "$folder"
}

install_packages <deploy/packages.txt
# The status page's tests look at it in a browser; parsers' fuzz targets are compiled by clang; the
# package is tested in a Debian of its own, and under a systemd that boots there; a new user types
# into a terminal of tmux.
[ "${1:---all}" != --long ] ||
  printf '%s\n' chromium clang libclang-rt-14-dev librsvg2-bin mmdebstrap systemd-container tmux |
    install_packages
# What control groups of version 2 hold workers to is tested in a Linux of its own.
[ "${1:---all}" = --product ] || install_packages <<<user-mode-linux
make_venv
install_requirements "${1:---all}"
[ "${1:---all}" = --product ] || install_prometheus
say "everything is installed"
