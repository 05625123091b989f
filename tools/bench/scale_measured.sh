#!/usr/bin/env bash
# Real runs of several groups beside the model of bench scale; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "scale_measured: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
