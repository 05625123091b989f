#!/usr/bin/env bash
# Prints two words: a digest of all that tools/gpu-check.sh builds and runs, and one of what its programs are built from. It is that of what git
# takes along: a copy without git has the same one.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
files() {
    git ls-files -z --cached --others --exclude-standard -- "$@" 2>/dev/null || find "$@" -type f ! -name '*.pyc' -print0 2>/dev/null
}
digest() { files "$@" | LC_ALL=C sort -zu | xargs -0 sha256sum 2>/dev/null | sha256sum | cut -c 1-16; }
echo "$(digest CMakeLists.txt cmake src tests tools) $(digest CMakeLists.txt CMakePresets.json cmake src tests/CMakeLists.txt tests/cuda tests/nn tests/support)"
