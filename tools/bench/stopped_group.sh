#!/usr/bin/env bash
# What the other groups of a training notice when one is stopped; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "stopped_group: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
