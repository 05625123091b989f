#!/usr/bin/env bash
# How well convolutions' implementations are chosen, and how fast programs start; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "choices: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
