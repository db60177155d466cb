#!/usr/bin/env bash
# Makes the secrets that docker-compose.yml mounts, each a file in secrets/, unless they are there.
# The folder is its owner's alone; the files can be read by any user, because a container's has
# another number and sees nothing but the one file.
set -euo pipefail
cd "$(dirname "$0")"
chmod 0700 secrets
for name in grafana_admin_password; do
  [ -s "secrets/$name" ] && continue
  head -c 24 /dev/urandom | base64 | tr -d '\n' >"secrets/$name"
  chmod 0444 "secrets/$name"
  echo "made deploy/compose/secrets/$name"
done
