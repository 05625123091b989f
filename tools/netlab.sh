#!/usr/bin/env bash
# Hosts on this machine, joined by links of a given speed; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "netlab: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
