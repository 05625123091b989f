#!/usr/bin/env bash
# Collects in build/gpu-pack what a machine with a GPU may lack: xxHash's header, cmocka, the commit, the test programs and the benchmark
# built for sm_90a (H100, H200), and the losses of `ref`. tools/gpu-check.sh takes the programs where the sources are still these. Without
# nvcc the programs are left out; the other machine then builds them.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=build/gpu-check
programs=${COD_PACK_PROGRAMS:-} # a folder of programs that are packed instead of being built here
target=build/gpu-pack
most_bytes=20000000 # with what git tracks, far below the 64 MiB that may travel

fail() { echo "gpu-pack: $*" >&2; exit 1; }

mkdir -p $target
cp /usr/include/xxhash.h /usr/include/cmocka*.h $target/ && cp -L "$(ldconfig -p | awk '/libcmocka\.so/ { print $NF; exit }')" $target/libcmocka.so.0 &&
    ln -sf libcmocka.so.0 $target/libcmocka.so || fail "xxHash's headers or cmocka are missing here"
read -r of_all of_programs < <(tools/gpu-digest.sh)
echo "$(git rev-parse HEAD || echo unknown) $of_all" >$target/commit
git diff --quiet HEAD || echo "gpu-pack: what is packed has changes that are in no commit" >&2
rm -f $target/programs.tar.xz $target/programs.digest

if [ -z "$programs" ]; then
    PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null || { echo "gpu-pack: $target, without programs, as nvcc is missing here"; exit 0; }
    launchers=()
    ! command -v ccache >/dev/null || launchers=(-DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache)
    { cmake --preset gpu-check -DCMAKE_CUDA_ARCHITECTURES=90a-real "${launchers[@]}" && cmake --build --preset gpu-check; } >build/gpu-pack.log 2>&1 ||
        { tail -n 40 build/gpu-pack.log; fail "the build failed"; }
    python3 -B tools/kernel_resources.py --table --allow tests/cuda/spills.txt $tree/libcod_cuda.a >build/gpu-check.resources.txt ||
        { tail -n 20 build/gpu-check.resources.txt; fail "a kernel is not sound"; }
    programs=$tree/tests/cuda
fi

# Of other libraries than these, none may be needed: cuDNN, cuBLASLt, NCCL and the driver are loaded when they are used.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
for program in "$programs"/bench_cuda_step "$programs"/test_cuda_library "$programs"/test_cuda_*_device; do
    [ -x "$program" ] || continue
    more=$(objdump -p "$program" | awk '$1 == "NEEDED" && $2 !~ /^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcmocka|ld-linux-x86-64)\.so/ { print $2 }')
    [ -z "$more" ] || fail "$(basename "$program") needs $more"
    cp "$program" "$stage/"
done
[ -x "$stage/bench_cuda_step" ] || fail "$programs has no bench_cuda_step"
strip -g "$stage"/*
glibc=$(objdump -T "$stage"/* $target/libcmocka.so.0 | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)

# The same kernels lie in most programs: a dictionary above all of them finds that.
tar -C "$stage" -cf - --sort=name . | xz -T 1 --lzma2=preset=1,dict=192MiB >$target/programs.tar.xz
bytes=$(stat -c %s $target/programs.tar.xz)
[ "$bytes" -le $most_bytes ] || fail "$target/programs.tar.xz has $bytes bytes, more than $most_bytes"

# What ref computes on a processor for half a minute need not be computed beside a GPU.
if [ -z "${COD_PACK_PROGRAMS:-}" ] && ! grep -qs "\"commit\": \"$of_programs\"" $target/losses.json; then
    python3 -B tools/bench/gpu_losses.py --bench "$stage/bench_cuda_step" --cases srresnet-small,mlp,resnet18-small --runs ref-f32 --seconds 900 \
        --json $target/losses.json --commit "$of_programs" >build/gpu-pack.losses.log 2>&1 || { cat build/gpu-pack.losses.log; fail "losses of ref"; }
fi
echo "$of_programs" >$target/programs.digest
echo "gpu-pack: $target, $((bytes / 1000000)) MB: $(find "$stage" -type f | wc -l) programs for sm_90a, which have $(du -sm "$stage" | cut -f 1) MB" \
    "unpacked and need $glibc"
