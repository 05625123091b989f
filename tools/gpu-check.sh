#!/usr/bin/env bash
# Builds the CUDA backend with its tests on a machine with a GPU, runs them there, and times training steps beside PyTorch's in turns. Needs
# a C and a C++ compiler, CMake, ninja, nvcc and python3; no MPI, oneDNN or YAML. Parts 3 and 4 compare with PyTorch, where python3 has it.
# Exit code 0: all passed, 1: something failed, 77: it builds, but there is no GPU. Results also go to $OUT, if set.
#
# usage: tools/gpu-check.sh [--part N] ... | --pack | --bundle | --whole [--rehearse] | --help
#   --part N  only this one: 1 tests against ref, and the kernels' resources; 2 compute-sanitizer on small steps; 3 losses of 100 steps
#             beside ref's and PyTorch's; 4 times. Without it: 1, 4, 3, 2, and after each its results are in $OUT
#   --pack    on another machine: collects xxHash's header and cmocka in build/gpu-pack, for a machine that lacks them
#   --bundle  on another machine: packs its release build with libraries and data into build/gpu-bundle, at most 60 MB
#   --whole   builds nothing: trains and upscales on the GPU with what is packed in build/gpu-bundle; --rehearse: a few steps on the CPU
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tree=build/gpu-check
bench=$tree/tests/cuda/bench_cuda_step
bundle=build/gpu-bundle/bundle.tar.xz
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

mode=parts parts=() rehearse=()
while [ $# -gt 0 ]; do
    case $1 in
        --part)
            [[ ${2-} =~ ^[1234]$ ]] || bad_usage "--part needs 1, 2, 3 or 4"
            parts+=("$2")
            shift ;;
        --pack | --bundle | --whole) mode=${1#--} ;;
        --rehearse) rehearse=(--device cpu --rehearse) ;;
        -h | --help) usage; exit 0 ;;
        *) bad_usage "unknown option '$1'" ;;
    esac
    shift
done
[ ${#rehearse[@]} -eq 0 ] || [ $mode = whole ] || bad_usage "--rehearse goes with --whole"
[ ${#parts[@]} -eq 0 ] || [ $mode = parts ] || bad_usage "--part does not go with --$mode"
# The sanitizer last: where time runs out, the rest says more.
[ ${#parts[@]} -gt 0 ] || parts=(1 4 3 2)
case $mode in
    pack) pack; exit ;;
    bundle) exec tools/gpu-bundle.sh ;;
esac

mkdir -p build
log=build/gpu-check.log
exec > >(tee "$log") 2>&1
failures=() skipped=()

# Copies the log and the files named here to $OUT: what is there stays where a time limit ends this script.
keep() {
    for file in "$log" "$@"; do
        [ -z "${OUT-}" ] || [ ! -f "$file" ] || cp "$file" "$OUT"/
    done
}

# Ends with what failed and what was skipped; keeps the files named here.
conclude() {
    say "finished"
    for failure in "${failures[@]}"; do echo "gpu-check: FAILED: $failure"; done
    for part in "${skipped[@]}"; do echo "gpu-check: skipped: $part"; done
    [ ${#failures[@]} -gt 0 ] || echo "gpu-check: all of it passed$([ ${#skipped[@]} -eq 0 ] || echo ", but for what was skipped")"
    keep "$@"
    [ ${#failures[@]} -eq 0 ]
    exit
}

has_gpu() { nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader; }

whole() {
    local folder=build/gpu-whole
    [ -f $bundle ] || { echo "gpu-check: $bundle is not there; make it by tools/gpu-check.sh --bundle where the release build is"; exit 1; }
    [ ${#rehearse[@]} -gt 0 ] || has_gpu || { echo "gpu-check: nvidia-smi finds no GPU here"; exit 77; }
    rm -rf $folder
    mkdir -p $folder/out
    # python3 unpacks it also where xz is missing.
    tar -C $folder -xJf $bundle 2>/dev/null || python3 -m tarfile -e $bundle $folder || { echo "gpu-check: cannot unpack $bundle"; exit 1; }
    $folder/codistill/whole.sh "${rehearse[@]}" $folder/out || failures+=("the whole, from the bundle")
    conclude $folder/out/upscaled.png $folder/out/islands-compare/compare.json $folder/out/sr-demo/summary.json
}
[ $mode != whole ] || whole

# For this machine's GPU alone, which is a third of the compiler's work; where there is none, for all.
architectures() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    [[ $capability =~ ^[0-9]+$ ]] || return
    [ "$capability" -lt 90 ] || capability+=a
    echo "-DCMAKE_CUDA_ARCHITECTURES=$capability-real"
}

say "build"
# shellcheck disable=SC2046
cmake --preset gpu-check $(architectures) >build/gpu-check.build.log 2>&1 && cmake --build --preset gpu-check >>build/gpu-check.build.log 2>&1 ||
    { tail -n 40 build/gpu-check.build.log; echo "gpu-check: FAILED: build"; exit 1; }
has_gpu || { echo "gpu-check: it builds; nvidia-smi finds no GPU here, so nothing was run"; exit 77; }

check_tests() {
    say "tests on the device, against ref; the kernels' resources"
    ctest --test-dir $tree --output-on-failure --no-tests=error --parallel 4 -R '_device|cuda_resources' | tee build/gpu-check.tests.log ||
        failures+=("tests")
    ! grep -q 'Skipped' build/gpu-check.tests.log || failures+=("tests that were skipped, although there is a GPU")
    python3 -B tools/kernel_resources.py --table --allow tests/cuda/spills.txt $tree/libcod_cuda.a >build/gpu-check.resources.txt || failures+=("resources")
    tail -n 1 build/gpu-check.resources.txt
}

# Two steps of networks that have all kinds of layers.
small_steps=(
    "srresnet|blocks=1 channels=64|1 8 8 3|bf16" "srresnet|blocks=1 channels=16|1 5 7 3|f32"
    "resnet18|height=32 width=32 channels=3 classes=10 features=16|2 32 32 3|bf16"
    "mlp|height=1 width=1 channels=16 classes=10 hidden=64|4 1 1 16|bf16"
)

check_sanitizer() {
    local sanitizer model options shape kind
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$sanitizer" ] || { skipped+=("part 2, as compute-sanitizer is missing"); return; }
    for tool in memcheck racecheck; do
        for entry in "${small_steps[@]}"; do
            IFS='|' read -r model options shape kind <<<"$entry"
            say "compute-sanitizer, $tool, two steps of $model in $kind"
            # shellcheck disable=SC2086
            COD_CUDA_CONVOLUTION=fixed timeout 90 "$sanitizer" --tool $tool --error-exitcode 9 $bench losses "$model" "$options" $shape cuda "$kind" 2 >build/sanitizer.log 2>&1 ||
                { tail -n 30 build/sanitizer.log; failures+=("$tool on $model in $kind"); }
        done
    done
}

check_losses() {
    say "losses of 100 steps from equal weights on equal batches"
    timeout 200 python3 -B tools/bench/gpu_losses.py --bench $bench --json build/losses.json || failures+=("losses")
}

check_times() {
    say "times of a training step (bf16, Adam), in turns with PyTorch's forms"
    timeout 420 python3 -B tools/bench/gpu_steps.py --bench $bench --json build/steps.json || failures+=("times")
}

results=(build/losses.json build/steps.json build/gpu-check.resources.txt build/gpu-check.tests.log)
for part in "${parts[@]}"; do
    case $part in
        1) check_tests ;;
        2) check_sanitizer ;;
        3) check_losses ;;
        4) check_times ;;
    esac
    keep "${results[@]}"
done
conclude "${results[@]}"
