#!/usr/bin/env bash
# Creates the secrets that docker-compose.yml mounts, each a file in secrets/, unless they exist.
# Only the owner can open the folder. The files are readable by any user, because a container's user
# has another number; a container sees only the one file that is mounted into it.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")"
chmod 0700 secrets
for name in grafana_admin_password; do
  [ -s "secrets/$name" ] && continue
  head -c 24 /dev/urandom | base64 | tr -d '\n' >"secrets/$name"
  chmod 0444 "secrets/$name"
  echo "made deploy/compose/secrets/$name"
done
