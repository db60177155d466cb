#!/usr/bin/env bash
# prepare_docker.sh LOG: sets up a Docker that deploy_test.py can use, from Debian 12 packages, and
# prints `dockerd=PID` if it started a daemon.
#
# Installs docker.io, compose and debootstrap if they are missing (needs root; Debian 12 has compose
# 1.29 alone, which is taken where there is no `docker compose`), starts dockerd if none answers, and makes oxbow/test-base:bookworm, a Debian without documentation, as
# the base of the images. Uses no registry.
#
# The daemon has neither iptables rules nor a default bridge: the networks of compose work without
# them, and builds use the host's network.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
log=$1
install_missing() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "installing: ${missing[*]}" >&2
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

if ! docker info >/dev/null 2>&1; then
  install_missing docker.io
  setsid nice dockerd --iptables=false --bridge=none >"$log" 2>&1 </dev/null &
  daemon=$!
  for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || { tail -5 "$log" >&2; echo "prepare_docker.sh: dockerd ended" >&2; exit 3; }
    sleep 0.5
  done
  docker info >/dev/null || { echo "prepare_docker.sh: no answer from dockerd within 60 s; see $log" >&2; exit 3; }
  echo "dockerd=$daemon"
fi
docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || install_missing docker-compose

docker image inspect oxbow/test-base:bookworm >/dev/null 2>&1 && exit 0
install_missing debootstrap
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" >&2
# As in bookworm-slim.
tar -C "$root" --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
  --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' --exclude='./dev/*' -c . |
  docker import --change 'CMD ["bash"]' - oxbow/test-base:bookworm >&2
