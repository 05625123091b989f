#!/bin/sh
# Runs a script by the Python that has the programs that we are compared with: PyTorch, ONNX Runtime and the like. `tools/test.sh --peers` makes
# that environment; it is looked for when the test runs, so that trees that were configured before know of it.
for folder in "${COD_PEERS:-}" "${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/codistill/venv-peers" /opt/codonnx; do
    [ -z "$folder" ] || [ ! -x "$folder/bin/python" ] || exec "$folder/bin/python" "$@"
done
exec python3 "$@"
