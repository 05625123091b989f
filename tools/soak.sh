#!/usr/bin/env bash
# Kills groups that train together as separate jobs, again and again; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "soak: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
