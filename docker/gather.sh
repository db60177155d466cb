#!/usr/bin/env bash
# gather.sh BASE OUT BINARY...: collects what an image needs beside its base.
#
# It strips the binaries and puts them into OUT/opt/oxbow/bin. It copies the shared libraries that
# they load to the places where the loader looks for them anyway, unless the root file system BASE
# already has them. Libraries under /opt/libtorch are a separate layer and are left out. Where a
# binary links Tesseract, its English data come along, and where one links libcurl, the authorities
# whose certificates it accepts.
#
# Into OUT/opt/oxbow/sbom it writes what is in the image and what made it: packages.txt (Debian's
# packages in it, with versions), build-packages.txt (all of the build's) and sbom.cdx.json (the
# first, with the Python distributions that LibTorch came with: tools/sbom.py).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
base=$1 out=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
bill=$out/opt/oxbow/sbom row='${Package}\t${Version}\t${Architecture}\n'
mkdir -p "$bill"
dpkg-query --show --showformat "$row" >"$bill/build-packages.txt"
dpkg-query --admindir "$base/var/lib/dpkg" --show --showformat "$row" >"$bill/packages.txt"
mkdir -p "$out/opt/oxbow/bin"
install --strip --mode 0755 -t "$out/opt/oxbow/bin" "$@"

loaded=$(for binary in "$@"; do ldd "$binary"; done)
# The driver's library comes from the machine that has the GPU.
if missing=$(grep "not found" <<<"$loaded" | grep -v "libcuda\.so"); then
  echo "gather.sh: libraries that nobody has: $missing" >&2
  exit 4
fi
files=$(awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$loaded" | sort -u)
if grep -q "libtesseract\.so" <<<"$files"; then
  files+=$'\n'/usr/share/tesseract-ocr/5/tessdata/eng.traineddata
fi
if grep -q "libcurl\.so" <<<"$files" && [ ! -e "$base/etc/ssl/certs/ca-certificates.crt" ]; then
  install -D --mode 0644 /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/ca-certificates.crt"
  # The file is made when the package is installed, and no package owns it.
  dpkg-query --show --showformat "$row" ca-certificates >>"$bill/packages.txt"
fi
while read -r library; do
  place=$(realpath "$(dirname "$library")")/$(basename "$library")  # /lib is a link to /usr/lib.
  case "$place" in /opt/libtorch/*) continue ;; esac
  [ ! -e "$base$place" ] || continue
  install -D --mode 0644 "$place" "$out$place"
  # A package's list may name the file by /lib, which is a link to /usr/lib; BLAS is reached by links of alternatives.
  owner=$(dpkg-query --search "$place" 2>/dev/null || dpkg-query --search "${place#/usr}" 2>/dev/null ||
    dpkg-query --search "$(realpath "$library")")
  dpkg-query --show --showformat "$row" "${owner%%: *}" >>"$bill/packages.txt"
done <<<"$files"
sort -u -o "$bill/packages.txt" "$bill/packages.txt"
python=()
for packages in "$root"/.deps/venv/lib/python3*/site-packages "$root"/.deps/cuda-venv/lib/python3*/site-packages; do
  [ ! -d /opt/libtorch ] || [ ! -d "$packages" ] || python=(--python "$packages")
done
python3 "$root/tools/sbom.py" --name oxbow --version "${VERSION:-0}" --dpkg "$bill/packages.txt" "${python[@]}" \
  >"$bill/sbom.cdx.json"
python3 "$root/tools/sbom.py" --check "$bill/sbom.cdx.json"
