#!/usr/bin/env bash
# From which link rate on codistill reaches a quality sooner than allreduce; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "crossing: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
