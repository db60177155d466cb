#!/usr/bin/env bash
# build.sh [IMAGE...] [-- DOCKER BUILD FLAGS]: builds oxbow/buffer and oxbow/torch.
#
#   IMAGE   buffer | torch | torch-cuda (oxbow/torch:cuda); default: buffer torch
#
#   docker/build.sh
#   docker/build.sh torch -- --build-arg TORCH_INDEX=URL-OF-A-CPU-WHEEL-INDEX
#   docker/build.sh torch-cuda
#
# DOCKER names another client (default: docker).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
images=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do images+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#images[@]} -gt 0 ] || images=(buffer torch)

version=$(sed -n 's/^project(oxbow VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse --short=10 HEAD 2>/dev/null || true)
flags=(--file docker/Dockerfile --build-arg "VERSION=$version" --build-arg "REVISION=$revision")
for image in "${images[@]}"; do
  case "$image" in
    buffer) what=(--target buffer --tag oxbow/buffer) ;;
    torch) what=(--target torch --tag oxbow/torch) ;;
    torch-cuda) what=(--target torch --tag oxbow/torch:cuda --build-arg TORCH_VARIANT=cuda) ;;
    *) echo "build.sh: no such image (buffer, torch, torch-cuda): $image" >&2; exit 2 ;;
  esac
  DOCKER_BUILDKIT=1 "${DOCKER:-docker}" build "${flags[@]}" "${what[@]}" "$@" .
done
