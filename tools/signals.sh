#!/usr/bin/env bash
# Sends each signal to each process of small trainings at instants from exec to exit; --help says more. The work is done by the Python file
# beside this one.
command -v python3 >/dev/null || { echo "signals: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
