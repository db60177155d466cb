#!/usr/bin/env bash
# Installs what oxbow needs to build and run on Debian 12: packages, and LibTorch in .deps/venv.
# Idempotent: installed packages are left unchanged. Uses sudo only if it is not root and something
# is missing.
#
#   tools/install_deps.sh [--build|--runtime|--lint|--fuzz] [--cuda] [--torch-version V] [--torch-index URL] [--no-torch]
#   tools/install_deps.sh --observe
#   tools/install_deps.sh --python
#   tools/install_deps.sh --export
#   tools/install_deps.sh --docs
#   tools/install_deps.sh --browser
#
#   --observe           only the needs of tests/observe/check.sh, in .deps: Debian's Prometheus (unpacked, so that no
#                       daemon starts), kubectl, and the types of Kubernetes and Grafana.
#   --fuzz              what --build installs, clang, and its libFuzzer and sanitizers.
#   --python            only the needs of `make check-python`: three Python environments in .deps, with the oldest and
#                       the newest supported packages, and with experiment trackers and Ray.
#   --export            only diffusers and what it needs, in .deps/export: for the exporter of graphs and for
#                       tests/real_sizes. Its torch is that of --build, which comes first.
#   --browser           only Chromium, in which io_report_browser_test looks at a run's page; without it that test is
#                       skipped.
#   --docs              only the generator of `make docs`, in .deps/docs.
#   --cuda              CUDA LibTorch with NCCL, and nvcc (4.9 GB), in .deps/cuda-venv, for the preset `cuda`.
#   --torch-version V   another LibTorch. Versions in tools/requirements are checked against their hashes.
#   --torch-index URL   take the torch wheel from this package index. If the default index has only the
#                       multi-gigabyte CUDA build, name the CPU index of the PyTorch project here.
#   OXBOW_TORCH_DIR     use this LibTorch (a directory with include/ and lib/) and download none.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."

profile=--build torch_version="" torch_index="" torch=yes venv=.deps/venv
while [ $# -gt 0 ]; do
  case "$1" in
    --build | --runtime | --lint | --fuzz | --observe | --python | --export | --docs | --browser) profile=$1 ;;
    --cuda) venv=.deps/cuda-venv ;;
    --torch-version) torch_version=$2; shift ;;
    --torch-index) torch_index=$2; shift ;;
    --no-torch) torch=no ;;
    -h | --help) sed -n '2,27p' "$0" | cut -c3-; exit 0 ;;
    *) echo "install_deps.sh: unknown option: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
# The last version whose default wheel is the CUDA build on every platform; it is not the newest.
if [ -z "$torch_version" ]; then
  [ "$venv" = .deps/venv ] && torch_version=2.13.0 || torch_version=2.11.0
fi

runtime=(libgrpc++1.51 libprotobuf32 librocksdb7.8 libprometheus-cpp-core1.0
  libyaml-cpp0.7 libpng16-16 libjpeg62-turbo libre2-9 libssl3 libicu72 libxxhash0 libtesseract5 tesseract-ocr-eng
  libopencv-imgproc406 libcurl4 libcpp-httplib0.11 ca-certificates)
build=(g++ cmake ninja-build ccache mold make git pkg-config python3 python3-venv
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev librocksdb-dev
  prometheus-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev libyaml-cpp-dev nlohmann-json3-dev
  libcli11-dev libpng-dev libjpeg62-turbo-dev zlib1g-dev libre2-dev libssl-dev libc-ares-dev
  libicu-dev libgloo-dev libxxhash-dev libtesseract-dev tesseract-ocr-eng libopencv-imgproc-dev libcurl4-openssl-dev libcpp-httplib-dev
  ca-certificates)
lint=(clang-format clang-tidy)
fuzz=(clang-14 libclang-rt-14-dev)
observe=(python3 python3-venv openssl)
python=(python3 python3-venv openssl protobuf-compiler)
# Any installed Node.js will do.
command -v npm >/dev/null || observe+=(nodejs npm)
case "$profile" in
  --runtime) packages=("${runtime[@]}") ;;
  --build) packages=("${build[@]}") ;;
  --lint) packages=("${build[@]}" "${lint[@]}") ;;
  --fuzz) packages=("${build[@]}" "${fuzz[@]}") ;;
  --observe) packages=("${observe[@]}") ;;
  --python) packages=("${python[@]}") ;;
  --export | --docs) packages=(python3 python3-venv) ;;
  --browser) packages=(chromium) ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    sudo=$(command -v sudo) || { echo "install_deps.sh: need root (no sudo) to install: ${missing[*]}" >&2; exit 3; }
  fi
  echo "installing: ${missing[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "$profile" = --observe ]; then
  mkdir -p .deps
  if [ ! -x .deps/prometheus/usr/bin/promtool ]; then
    echo "unpacking Prometheus into .deps/prometheus"
    download=$(mktemp -d)
    trap 'rm -rf "$download"' EXIT
    # The user _apt cannot read root's temporary directory; apt then warns and reads as root.
    (cd "$download" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; }) \
      2>"$download/log" || { cat "$download/log" >&2; exit 3; }
    dpkg-deb -x "$download"/prometheus_*.deb .deps/prometheus
  fi
  # Installed again when the pinned versions have changed.
  if ! cmp -s tests/observe/requirements.txt .deps/observe/requirements.txt; then
    echo "installing kubectl and its like into .deps/observe"
    python3 -m venv .deps/observe
    .deps/observe/bin/pip install -q --disable-pip-version-check --require-hashes -r tests/observe/requirements.txt
    cp tests/observe/requirements.txt .deps/observe/
  fi
  if ! cmp -s tests/observe/package-lock.json .deps/observe-node/package-lock.json; then
    echo "installing types into .deps/observe-node"
    mkdir -p .deps/observe-node
    cp tests/observe/package.json tests/observe/package-lock.json .deps/observe-node/
    (cd .deps/observe-node && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null) ||
      { rm .deps/observe-node/package-lock.json; exit 3; }
  fi
  exit 0
fi

if [ "$profile" = --python ]; then
  mkdir -p .deps
  for set in oldest newest trackers; do
    pins=tools/requirements/python-$set.txt environment=.deps/python-$set
    cmp -s "$pins" "$environment/requirements.txt" && continue
    echo "installing packages into $environment"
    rm -rf "$environment"
    python3 -m venv "$environment"
    pip=("$environment/bin/pip" install -q --disable-pip-version-check --no-deps --require-hashes)
    if [ "$set" = trackers ]; then
      # Some packages of trackers have no wheel: the setuptools of the newest set builds them.
      "${pip[@]}" --only-binary :all: -r tools/requirements/python-newest.txt
      "${pip[@]}" --no-build-isolation -r "$pins"
    else
      "${pip[@]}" --only-binary :all: -r "$pins"
    fi
    cp "$pins" "$environment/requirements.txt"
  done
  exit 0
fi

if [ "$profile" = --export ]; then
  torch_home=$(dirname "${OXBOW_TORCH_DIR:-$PWD/$(echo .deps/venv/lib/python3*/site-packages)/torch}")
  [ -e "$torch_home/torch/__init__.py" ] || {
    echo "install_deps.sh: no torch for Python there, run tools/install_deps.sh first: $torch_home" >&2; exit 4; }
  pins=(tools/requirements/export.txt tools/requirements/torch-2.13.0-python.txt)
  if ! cat "${pins[@]}" <(echo "# $torch_home") | cmp -s - .deps/export/requirements.txt; then
    echo "installing diffusers into .deps/export"
    rm -rf .deps/export
    python3 -m venv .deps/export
    .deps/export/bin/pip install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
      "${pins[@]/#/--requirement=}"
    echo "$torch_home" >"$(echo .deps/export/lib/python3*/site-packages)/torch_of_oxbow.pth"
    cat "${pins[@]}" <(echo "# $torch_home") >.deps/export/requirements.txt
  fi
  exit 0
fi

if [ "$profile" = --docs ]; then
  if ! cmp -s tools/requirements/docs.txt .deps/docs/requirements.txt; then
    echo "installing mkdocs into .deps/docs"
    rm -rf .deps/docs
    python3 -m venv .deps/docs
    .deps/docs/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r tools/requirements/docs.txt
    cp tools/requirements/docs.txt .deps/docs/
  fi
  exit 0
fi

[ "$profile" != --browser ] || exit 0
[ "$torch" = yes ] || exit 0
if [ -n "${OXBOW_TORCH_DIR:-}" ]; then
  [ -e "$OXBOW_TORCH_DIR/include/ATen/ATen.h" ] || {
    echo "install_deps.sh: no LibTorch there (include/ATen/ATen.h is missing): $OXBOW_TORCH_DIR" >&2; exit 4; }
  exit 0
fi
whole=torch/include/ATen/ATen.h
# The compiler of CUDA, which an environment of an earlier version does not have.
if [ "$venv" != .deps/venv ] && [ -z "${PIP_NO_DEPS:-}" ] && [ -e "tools/requirements/torch-$torch_version-cuda.txt" ]; then
  whole=nvidia/cu*/nvvm/bin/cicc
fi
# Packages of commands that are written in Python; images go without.
parts() {
  [ "$venv" = .deps/venv ] && [ -z "${PIP_NO_DEPS:-}" ] || return 0
  cmp -s tools/requirements/parts.txt "$venv/parts.txt" && return 0
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tools/requirements/parts.txt
  cp tools/requirements/parts.txt "$venv/parts.txt"
}
if compgen -G "$venv/lib/python3*/site-packages/$whole" >/dev/null; then parts; exit 0; fi
echo "installing LibTorch $torch_version into $venv"
mkdir -p .deps
python3 -m venv "$venv"
index=()
[ -z "$torch_index" ] || index=(--index-url "$torch_index")
[ "$venv" = .deps/venv ] || index+=(--no-cache-dir)  # It has gigabytes and is installed once.
pip=("$venv/bin/pip" install -q --disable-pip-version-check "${index[@]}")
pinned=tools/requirements/torch-$torch_version
if [ ! -e "$pinned.txt" ]; then
  echo "install_deps.sh: warning: torch $torch_version has no hashes in tools/requirements: nothing checks what is" \
    "downloaded" >&2
  "${pip[@]}" "torch==$torch_version"
  parts
  exit 0
fi
"${pip[@]}" --no-deps --require-hashes -r "$pinned.txt"
[ -z "${PIP_NO_DEPS:-}" ] || exit 0  # LibTorch itself needs no Python package.
# The index decides which build comes, and the build what it needs.
build=python
if compgen -G "$venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so" >/dev/null; then build=cuda; fi
"${pip[@]}" --no-deps --require-hashes -r "$pinned-$build.txt"
parts
