#!/usr/bin/env bash
# An adversarial training step against PyTorch's on this machine; --help says more. The work is done by the Python file beside this one.
command -v python3 >/dev/null || { echo "gan_vs_pytorch: python3 is missing" >&2; exit 1; }
exec python3 -B "${BASH_SOURCE[0]%.sh}.py" "$@"
