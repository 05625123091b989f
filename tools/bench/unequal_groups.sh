#!/usr/bin/env bash
# What merging is worth when one group is slower than the others; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "unequal_groups: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
