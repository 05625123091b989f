#!/usr/bin/env bash
# Builds the CUDA backend with its tests on a machine with a GPU, runs them there and times training steps beside PyTorch's. Needs a C and
# a C++ compiler, CMake, ninja and nvcc; no MPI, oneDNN or YAML. Part 3 needs a python3 with PyTorch. Results also go to $OUT, if set.
# Exit code 0: all passed, 1: something failed, 77: it builds, but there is no GPU.
#
# usage: tools/gpu-check.sh [--part N] | --pack | --help
#   --part N  only this one: 1 tests against ref, 2 compute-sanitizer, 3 times
#   --pack    on another machine: collects xxHash's header and cmocka in build/gpu-pack, for a machine that lacks them
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tree=build/gpu-check
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/gpu-check.sh; }
bad_usage() { echo "gpu-check: $1; see tools/gpu-check.sh --help" >&2; exit 2; }
say() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

pack() {
    mkdir -p build/gpu-pack || exit 1
    cp /usr/include/xxhash.h /usr/include/cmocka*.h build/gpu-pack/ &&
        cp -L "$(ldconfig -p | awk '/libcmocka\.so/ { print $NF; exit }')" build/gpu-pack/libcmocka.so.0 &&
        ln -sf libcmocka.so.0 build/gpu-pack/libcmocka.so || { echo "gpu-check: xxHash's headers or cmocka are missing here" >&2; exit 1; }
    echo "gpu-check: packed in build/gpu-pack"
}

parts=(1 2 3)
while [ $# -gt 0 ]; do
    case $1 in
        --part)
            [[ ${2-} =~ ^[123]$ ]] || bad_usage "--part needs 1, 2 or 3"
            parts=("$2")
            shift ;;
        --pack) pack; exit ;;
        -h | --help) usage; exit 0 ;;
        *) bad_usage "unknown option '$1'" ;;
    esac
    shift
done

mkdir -p build
log=build/gpu-check.log
exec > >(tee "$log") 2>&1
failures=()

say "build"
cmake --preset gpu-check >build/gpu-check.build.log 2>&1 && cmake --build --preset gpu-check >>build/gpu-check.build.log 2>&1 ||
    { tail -n 40 build/gpu-check.build.log; echo "gpu-check: FAILED: build"; exit 1; }
if ! nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader; then
    echo "gpu-check: it builds; nvidia-smi finds no GPU here, so nothing was run"
    exit 77
fi

check_tests() {
    say "tests on the device, against ref"
    ctest --test-dir $tree --output-on-failure --no-tests=error -R _device || failures+=("tests")
}

check_sanitizer() {
    local sanitizer
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$sanitizer" ] || { echo "gpu-check: compute-sanitizer is missing: part 2 is skipped"; return; }
    for tool in memcheck racecheck; do
        say "compute-sanitizer, $tool, on training"
        COD_CUDA_CONVOLUTION=fixed timeout 240 "$sanitizer" --tool $tool --error-exitcode 9 $tree/tests/cuda/test_cuda_training_device || failures+=("$tool")
    done
}

times=(
    "srresnet||16 24 24 3" "srresnet||64 24 24 3" "srresnet||256 24 24 3"
    "mlp|height=28 width=28 channels=1 classes=10 hidden=1024,1024,1024|100 28 28 1"
    "mlp|height=28 width=28 channels=1 classes=10 hidden=1024,1024,1024|10000 28 28 1"
    "resnet50|height=224 width=224 channels=3 classes=1000|64 224 224 3"
)

check_times() {
    say "times of a training step (bf16, Adam): ours, then PyTorch's strongest form"
    for entry in "${times[@]}"; do
        IFS='|' read -r model options shape <<<"$entry"
        # shellcheck disable=SC2086
        $tree/tests/cuda/bench_cuda_step "$model" "$options" $shape || failures+=("step of $model $shape")
    done
    python3 -B tools/bench/gpu_pytorch.py || echo "gpu-check: PyTorch's times are missing"
}

for part in "${parts[@]}"; do
    case $part in
        1) check_tests ;;
        2) check_sanitizer ;;
        3) check_times ;;
    esac
done
say "finished"
[ -z "${OUT-}" ] || cp "$log" "$OUT"/
for failure in "${failures[@]}"; do echo "gpu-check: FAILED: $failure"; done
[ ${#failures[@]} -eq 0 ] && echo "gpu-check: all of it passed"
[ ${#failures[@]} -eq 0 ]
