#!/usr/bin/env bash
# Builds the CUDA backend with its tests on a machine with a GPU, runs them there, and times training steps beside PyTorch's in turns. Needs
# a C and a C++ compiler, CMake, ninja, nvcc and python3; no MPI, oneDNN or YAML. Parts 3 and 4 compare with PyTorch, where python3 has it.
# Exit code 0: all passed, 1: something failed, 3: nothing failed, but not everything was measured, 77: it builds, but there is no GPU.
# Results also go to $OUT, if set.
#
# usage: tools/gpu-check.sh [--minutes M] [--part N] ... | --pack | --bundle | --whole [--rehearse] | --help
#   --part N  only this one: 1 tests against ref, and the kernels' resources; 2 compute-sanitizer on small steps; 3 losses of 100 steps
#             beside ref's and PyTorch's; 4 times. Without it: 1, 4, 3, 2, and after each its results are in $OUT
#   --minutes M  for all of it, the build too (8); what has no time left is `not measured`
#   --pack    on another machine: collects xxHash's header, cmocka and the commit in build/gpu-pack, for a machine that lacks them
#   --bundle  on another machine: packs its release build with libraries and data into build/gpu-bundle, at most 47 MB
#   --whole   builds nothing: trains and upscales on the GPU with what is packed in build/gpu-bundle; --rehearse: a few steps on the CPU
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tree=build/gpu-check
bench=$tree/tests/cuda/bench_cuda_step
bundle=build/gpu-bundle/bundle.tar.xz
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/gpu-check.sh; }
bad_usage() { echo "gpu-check: $1; see tools/gpu-check.sh --help" >&2; exit 2; }
begun_s=$(date +%s)
passed_s() { echo $(($(date +%s) - begun_s)); }
say() {
    local passed
    passed=$(passed_s)
    echo "== $* ($((passed / 60)) min $((passed % 60)) s)"
}

# Of all that is built and run here.
digest() { find CMakeLists.txt cmake src tests tools -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16; }

# The commit that is checked, from git or, where the machine has a copy without it, from what --pack wrote beside the digest.
commit() {
    local packed_digest=none packed_commit
    if git rev-parse HEAD 2>/dev/null; then
        git diff --quiet HEAD 2>/dev/null || echo "with changes"
    elif read -r packed_commit packed_digest 2>/dev/null <build/gpu-pack/commit; then
        echo "$packed_commit"
        [ "$packed_digest" = "$(digest)" ] || echo "with changes since tools/gpu-check.sh --pack"
    else
        echo "unknown; tools/gpu-check.sh --pack takes it along"
    fi | paste -sd ' '
}

pack() {
    mkdir -p build/gpu-pack || exit 1
    cp /usr/include/xxhash.h /usr/include/cmocka*.h build/gpu-pack/ &&
        cp -L "$(ldconfig -p | awk '/libcmocka\.so/ { print $NF; exit }')" build/gpu-pack/libcmocka.so.0 &&
        ln -sf libcmocka.so.0 build/gpu-pack/libcmocka.so || { echo "gpu-check: xxHash's headers or cmocka are missing here" >&2; exit 1; }
    echo "$(git rev-parse HEAD || echo unknown) $(digest)" >build/gpu-pack/commit
    git diff --quiet HEAD || echo "gpu-check: what is packed has changes that are in no commit" >&2
    echo "gpu-check: packed in build/gpu-pack"
}

mode=parts parts=() rehearse=() minutes=8
while [ $# -gt 0 ]; do
    case $1 in
        --part)
            [[ ${2-} =~ ^[1234]$ ]] || bad_usage "--part needs 1, 2, 3 or 4"
            parts+=("$2")
            shift ;;
        --minutes)
            [[ ${2-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || bad_usage "--minutes needs a number such as 8 or 9.5"
            minutes=$2
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
summary=build/gpu-check.summary.txt
rm -f $summary
exec > >(tee "$log") 2>&1
failures=() skipped=() unmeasured=() tests=("not run")
budget_s=$(awk "BEGIN { print int(60 * $minutes) }")
least_s=5 # in which nothing is begun any more
left_until() {
    local passed
    passed=$(passed_s)
    echo $((passed < $1 ? $1 - passed : 0))
}
left() { left_until $budget_s; }

# Copies the log and the files named here to $OUT: what is there stays where a time limit ends this script.
keep() {
    for file in "$log" "$@"; do
        [ -z "${OUT-}" ] || [ ! -f "$file" ] || cp "$file" "$OUT"/
    done
}

# Ends with what failed, was skipped and was not measured, and last with the short table and the goals; keeps the files named here.
conclude() {
    say "finished"
    for failure in "${failures[@]}"; do echo "gpu-check: FAILED: $failure"; done
    for part in "${skipped[@]}"; do echo "gpu-check: skipped: $part"; done
    for what in "${unmeasured[@]}"; do echo "gpu-check: not measured: $what"; done
    [ $mode = whole ] || echo "gpu-check: tests on the device: ${tests[*]}"
    local but=()
    [ ${#skipped[@]} -eq 0 ] || but+=("what was skipped")
    [ ${#unmeasured[@]} -eq 0 ] || but+=("what was not measured")
    [ ${#failures[@]} -gt 0 ] || echo "gpu-check: all of it passed${but[0]:+, but for ${but[0]}}${but[1]:+ and ${but[1]}}"
    [ ! -f $summary ] || { echo; cat $summary; }
    keep "$@"
    [ ${#failures[@]} -eq 0 ] || exit 1
    [ ${#unmeasured[@]} -eq 0 ] || exit 3
    exit 0
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

# What is timed on this machine is known to all processes of this run, and to those of later ones.
export COD_CUDA_CACHE=${COD_CUDA_CACHE:-$PWD/build/gpu-check.choices}

commit=$(commit)
echo "gpu-check: commit $commit"
say "build"
# shellcheck disable=SC2046
timeout $(($(left) + 1)) cmake --preset gpu-check $(architectures) >build/gpu-check.build.log 2>&1 &&
    timeout $(($(left) + 1)) cmake --build --preset gpu-check >>build/gpu-check.build.log 2>&1
built=$?
if [ $built -eq 124 ]; then
    failures+=("build, which was not done after $minutes minutes")
    for part in "${parts[@]}"; do unmeasured+=("part $part"); done
    conclude build/gpu-check.build.log
elif [ $built -ne 0 ]; then
    tail -n 40 build/gpu-check.build.log
    echo "gpu-check: FAILED: build"
    exit 1
fi
wheels=$(tools/gpu-libraries.sh)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${wheels:+${LD_LIBRARY_PATH:+:}$wheels}"
has_gpu || { echo "gpu-check: it builds; nvidia-smi finds no GPU here, so nothing was run"; exit 77; }

# Runs a command for at most so many seconds, its output in a file, too. Lines `not measured: …` of it are collected. @return 124: cut off
limited() {
    local seconds=$1 output=$2 line code
    shift 2
    timeout -k 5 "$seconds" "$@" 2>&1 | tee "$output"
    code=${PIPESTATUS[0]}
    while IFS= read -r line; do unmeasured+=("${line#not measured: }"); done < <(grep '^not measured: ' "$output")
    return "$code"
}

# The code of a script that collects what it does not measure, and what the script is for.
judge() {
    case $1 in
        0 | 3) ;;
        124 | 137) unmeasured+=("$2, all of which were cut off") ;;
        *) failures+=("$2") ;;
    esac
}

ctest=(ctest --test-dir $tree -R _device) # the kernels' resources are read below

# Of ctest's output: how many tests ended so.
count_tests() { grep -E '^ *[0-9]+/[0-9]+ Test' build/gpu-check.tests.log | grep -cE "$1"; }

check_tests() {
    say "tests on the device, against ref; the kernels' resources"
    limited "$1" build/gpu-check.tests.log "${ctest[@]}" --output-on-failure --no-tests=error --parallel 4
    local code=$? name
    tests=("$(count_tests ' Passed ') passed, $(count_tests '\*\*\*Skipped') skipped, $(count_tests '\*\*\*(Failed|Timeout|Exception|Not Run)') failed")
    if [ $code -eq 124 ] || [ $code -eq 137 ]; then
        for name in $("${ctest[@]}" -N | sed -n 's/^ *Test *#[0-9]*: //p'); do
            grep -qE "^ *[0-9]+/[0-9]+ Test +#[0-9]+: $name " build/gpu-check.tests.log || unmeasured+=("test $name")
        done
    elif [ $code -ne 0 ]; then
        failures+=("tests")
    fi
    [ "$(count_tests '\*\*\*Skipped')" -eq 0 ] || failures+=("tests that were skipped, although there is a GPU")
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
    local end most_s=90 sanitizer model options shape kind what seconds code
    end=$(($(passed_s) + $1))
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$sanitizer" ] || { skipped+=("part 2, as compute-sanitizer is missing"); return; }
    for tool in memcheck racecheck; do
        for entry in "${small_steps[@]}"; do
            IFS='|' read -r model options shape kind <<<"$entry"
            what="$tool on $model of $shape in $kind"
            seconds=$(left_until $end)
            [ "$seconds" -ge $least_s ] || { unmeasured+=("$what: no time was left"); continue; }
            say "compute-sanitizer, $tool, two steps of $model in $kind"
            # shellcheck disable=SC2086
            COD_CUDA_CONVOLUTION=fixed timeout -k 5 $((seconds < most_s ? seconds : most_s)) "$sanitizer" --tool $tool --error-exitcode 9 \
                $bench losses "$model" "$options" $shape cuda "$kind" 2 >build/sanitizer.log 2>&1
            code=$?
            if [ $code -eq 124 ] || [ $code -eq 137 ]; then
                unmeasured+=("$what: cut off")
            elif [ $code -ne 0 ]; then
                tail -n 30 build/sanitizer.log
                failures+=("$what")
            fi
        done
    done
}

check_losses() {
    say "losses of 100 steps from equal weights on equal batches"
    limited "$1" build/gpu-check.losses.log python3 -B tools/bench/gpu_losses.py --bench $bench --json build/losses.json --commit "$commit" \
        --seconds $(($1 - least_s))
    judge $? losses
}

check_times() {
    say "times of a training step in bf16, in turns with PyTorch's forms"
    limited "$1" build/gpu-check.steps.log python3 -B tools/bench/gpu_steps.py --bench $bench --json build/steps.json --commit "$commit" \
        --summary $summary --seconds $(($1 - least_s))
    judge $? times
}

# How parts share the time that is left: what one does not need goes to those behind it.
weight() {
    case $1 in
        1) echo 25 ;;
        2) echo 10 ;;
        3) echo 15 ;;
        4) echo 60 ;;
    esac
}

results=(build/losses.json build/steps.json build/gpu-check.resources.txt build/gpu-check.tests.log $summary "$COD_CUDA_CACHE")
weights=0
for part in "${parts[@]}"; do weights=$((weights + $(weight "$part"))); done
for part in "${parts[@]}"; do
    seconds=$(($(left) * $(weight "$part") / weights))
    weights=$((weights - $(weight "$part")))
    [ $seconds -gt $least_s ] || { unmeasured+=("part $part: no time was left"); continue; }
    case $part in
        1) check_tests $seconds ;;
        2) check_sanitizer $seconds ;;
        3) check_losses $seconds ;;
        4) check_times $seconds ;;
    esac
    keep "${results[@]}"
done
conclude "${results[@]}"
