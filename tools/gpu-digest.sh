#!/usr/bin/env bash
# Prints two words: a digest of all that tools/gpu-check.sh builds and runs, and one of what its programs are built from.
set -euo pipefail
cd "$(dirname "$0")/.."
digest() { find "$@" -type f ! -name '*.pyc' -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16; }
echo "$(digest CMakeLists.txt cmake src tests tools) $(digest CMakeLists.txt CMakePresets.json cmake src tests/CMakeLists.txt tests/cuda tests/nn tests/support)"
