#!/usr/bin/env bash
# Where the CUDA backend is built: only where nvidia-smi finds a GPU, for that GPU, or where COD_CUDA=ON asks for it.
#
# usage: test_configured.sh SOURCE
set -uo pipefail
source=$1
command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || { echo "no nvcc was found"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
export PATH=$folder/bin:$PATH

# gpus CAPABILITY …: what nvidia-smi finds, nothing without one.
gpus() {
    { echo '#!/bin/sh'; for capability in "$@"; do echo "echo $capability"; done; [ $# -gt 0 ] || echo 'exit 9'; } >"$folder/bin/nvidia-smi"
    chmod +x "$folder/bin/nvidia-smi"
}
# said PATTERN ARGUMENT …: a tree that is configured anew says this.
said() {
    rm -rf "$folder/tree"
    local pattern=$1 all
    shift
    all=$(cmake -S "$source" -B "$folder/tree" -G Ninja "$@" 2>&1) || { echo "FAILED: $all"; exit 1; }
    grep -qF -e "$pattern" <<<"$all" || { echo "FAILED: '$pattern' was not said: $all"; exit 1; }
}
objects() { grep -c '^build CMakeFiles/cod_cuda.dir/.*\.cu\.o:' "$folder/tree/build.ninja"; }

gpus
said "nvidia-smi finds no GPU: the CUDA backend is not built; -DCOD_CUDA=ON"
[ "$(objects)" -eq 0 ] || { echo "FAILED: the backend is built where no GPU is"; exit 1; }
gpus 9.0 8.6 9.0
said "built for the GPU of this machine (90a-real;86-real)"
[ "$(objects)" -gt 0 ] || { echo "FAILED: the backend is not built where a GPU is"; exit 1; }
gpus
said "CUDA compiler" -DCOD_CUDA=ON
[ "$(objects)" -gt 0 ] || { echo "FAILED: the backend is not built where it is asked for"; exit 1; }
