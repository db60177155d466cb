#!/usr/bin/env bash
# gather.sh BASE OUT BINARY...: collects what an image needs beside its base.
#
# It strips the binaries and puts them into OUT/opt/oxbow/bin. It copies the shared libraries that
# they load to the places where the loader looks for them anyway, unless the root file system BASE
# already has them. Libraries under /opt/libtorch are a separate layer and are left out.
set -euo pipefail
base=$1 out=$2
shift 2
mkdir -p "$out/opt/oxbow/bin"
install --strip --mode 0755 -t "$out/opt/oxbow/bin" "$@"

loaded=$(for binary in "$@"; do ldd "$binary"; done)
# The driver's library comes from the machine that has the GPU.
if missing=$(grep "not found" <<<"$loaded" | grep -v "libcuda\.so"); then
  echo "gather.sh: libraries that nobody has: $missing" >&2
  exit 4
fi
awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$loaded" | sort -u | while read -r library; do
  place=$(realpath "$(dirname "$library")")/$(basename "$library")  # /lib is a link to /usr/lib.
  case "$place" in /opt/libtorch/*) continue ;; esac
  [ ! -e "$base$place" ] || continue
  install -D --mode 0644 "$place" "$out$place"
done
