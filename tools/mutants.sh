#!/usr/bin/env bash
# Plants faults in a copy of the sources and says which tests find them; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "mutants: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
