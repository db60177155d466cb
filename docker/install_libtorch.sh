#!/usr/bin/env bash
# install_libtorch.sh cpu|cuda [INDEX]: unpacks LibTorch from its wheel into .deps, to build with,
# and puts what an image needs of it into /opt/libtorch:
#
#   torch/lib     its libraries, without those of its Python part
#   nvidia/*/lib  cuda: the CUDA libraries of the wheel, where torch/lib looks for them
#
# The wheel comes from /wheels if there is one, else from INDEX, else from pip's own index.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."
variant=$1 index=${2:-}
venv=.deps/venv arguments=()
case "$variant" in
  cpu) export PIP_NO_DEPS=1 ;;  # It depends only on Python packages.
  cuda) venv=.deps/cuda-venv arguments=(--cuda) ;;
  *) echo "install_libtorch.sh: TORCH_VARIANT is cpu or cuda, not: $variant" >&2; exit 2 ;;
esac
if compgen -G "/wheels/torch-*.whl" >/dev/null; then
  export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
elif [ -n "$index" ]; then
  arguments+=(--torch-index "$index")
fi
export PIP_NO_CACHE_DIR=1
apt-get update -qq
tools/install_deps.sh --build "${arguments[@]}"
rm -rf /var/lib/apt/lists/*

packages=$(echo "$venv"/lib/python3*/site-packages)
if [ "$variant" = cpu ] && [ -e "$packages/torch/lib/libtorch_cuda.so" ]; then
  echo "install_libtorch.sh: the index served the CUDA build; give --build-arg TORCH_INDEX=URL of one with CPU wheels," \
    "or put a CPU wheel into docker/wheels/" >&2
  exit 4
fi
# Hard links, so that the layer holds each file once.
mkdir -p /opt/libtorch/torch /opt/libtorch/nvidia
cp -al "$packages/torch/lib" /opt/libtorch/torch/
cd /opt/libtorch/torch/lib
rm -f -- *.a libtorch_python.so libshm.so libtorch_global_deps.so
[ "$variant" = cuda ] || exit 0
cd /src/"$packages"/nvidia
for libraries in */lib; do
  mkdir -p "/opt/libtorch/nvidia/$(dirname "$libraries")"
  cp -al "$libraries" "/opt/libtorch/nvidia/$libraries"
  rm -f -- "/opt/libtorch/nvidia/$libraries"/*.a "/opt/libtorch/nvidia/$libraries"/libnvvm.so*  # nvcc's own.
done
