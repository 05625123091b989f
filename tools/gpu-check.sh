#!/usr/bin/env bash
# Tests and times the CUDA backend on a machine with a GPU: against ref, and beside PyTorch, where python3 has it. Takes the programs that
# --pack built elsewhere for H100 and H200 from the same sources; otherwise it builds them, which needs a C and a C++ compiler, CMake, ninja,
# nvcc and python3, but no MPI, oneDNN or YAML.
# Exit code 0: all passed, 1: something failed, 3: nothing failed, but not everything was measured, 77: there is no GPU.
# After each row its results are in $OUT, if set: at most eight files.
#
# usage: tools/gpu-check.sh [--minutes M] quick | rest | ROW ...
#        tools/gpu-check.sh --pack | --bundle | --whole [--rehearse] | --help
#   quick      what says most, in this order: libraries, first, smoke, alone, tests, turns, memcheck
#   rest       what takes longer: losses, profile, networks, resnet50, racecheck
#   ROW        one or several of these:
#     libraries  which of NVIDIA's libraries are found, and what they are asked without a GPU
#     first      losses of four steps beside ref's: each layer alone; recorded; recorded with kernels that begin early
#     smoke      five tests against ref, side by side
#     alone      our steps of SRResNet at 16, 256 and 64 without timed choices, each with its ops
#     tests      the other tests against ref, eight at a time, while PyTorch compiles
#     turns      the same steps with timed choices, in turns with PyTorch's strongest form; the goals
#     memcheck   compute-sanitizer on two steps of four small networks
#     losses     losses of 100 steps beside ref's and PyTorch's
#     profile    Nsight Compute's figures of the kernel of most 3x3 convolutions
#     networks   steps of MLPs and ResNet-50 in turns with PyTorch; what coding for other groups takes
#     resnet50   ResNet-50 at full width against ref
#     racecheck  as memcheck, for races
#   What fails first among the programs is repeated at the end, each layer alone, so that an error names its layer.
#   --minutes M  for all of it, a build too (6); rows share it, and what has no time left is `not measured`
#   --pack    on another machine: collects in build/gpu-pack (4 MB) what a machine with a GPU may lack, the programs too where nvcc is
#   --bundle  on another machine: packs its release build with libraries and data into build/gpu-bundle, at most 47 MB
#   --whole   builds nothing: trains and upscales on the GPU with what is packed in build/gpu-bundle; --rehearse: a few steps on the CPU
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tree=build/gpu-check
programs=$tree/tests/cuda
pack=build/gpu-pack
bundle=build/gpu-bundle/bundle.tar.xz
quick=(libraries first smoke alone tests turns memcheck)
rest=(losses profile networks resnet50 racecheck)
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/gpu-check.sh; }
bad_usage() { echo "gpu-check: $1; see tools/gpu-check.sh --help" >&2; exit 2; }
begun_s=$(date +%s)
passed_s() { echo $(($(date +%s) - begun_s)); }
say() {
    local passed
    passed=$(passed_s)
    echo "== $* ($((passed / 60)) min $((passed % 60)) s)"
}

# The commit that is checked, from git or, where the machine has a copy without it, from what --pack wrote beside the digest.
commit() {
    local packed_digest=none packed_commit
    if git rev-parse HEAD 2>/dev/null; then
        git diff --quiet HEAD 2>/dev/null || echo "with changes"
    elif read -r packed_commit packed_digest 2>/dev/null <$pack/commit; then
        echo "$packed_commit"
        [ "$packed_digest" = "$of_all" ] || echo "with changes since tools/gpu-check.sh --pack"
    else
        echo "unknown; tools/gpu-check.sh --pack takes it along"
    fi | paste -sd ' '
}

mode=rows rows=() rehearse=() minutes=6
while [ $# -gt 0 ]; do
    case $1 in
        quick) rows+=("${quick[@]}") ;;
        rest) rows+=("${rest[@]}") ;;
        --minutes)
            [[ ${2-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || bad_usage "--minutes needs a number such as 6 or 9.5"
            minutes=$2
            shift ;;
        --pack | --bundle | --whole) mode=${1#--} ;;
        --rehearse) rehearse=(--device cpu --rehearse) ;;
        -h | --help) usage; exit 0 ;;
        -*) bad_usage "unknown option '$1'" ;;
        *)
            [[ " ${quick[*]} ${rest[*]} " = *" $1 "* ]] || bad_usage "there is no '$1'; there are quick, rest, ${quick[*]} ${rest[*]}"
            rows+=("$1") ;;
    esac
    shift
done
[ ${#rehearse[@]} -eq 0 ] || [ $mode = whole ] || bad_usage "--rehearse goes with --whole"
[ ${#rows[@]} -eq 0 ] || [ $mode = rows ] || bad_usage "'${rows[0]}' does not go with --$mode"
[ ${#rows[@]} -gt 0 ] || [ $mode != rows ] || bad_usage "say quick, rest, or which rows"
case $mode in
    pack) exec tools/gpu-pack.sh ;;
    bundle) exec tools/gpu-bundle.sh ;;
esac

mkdir -p build
log=build/gpu-check.log
rm -rf build/gpu-check.rows
mkdir build/gpu-check.rows # what rows leave: short tables, logs of tests, results
exec > >(tee "$log" ${OUT:+"$OUT/gpu-check.log"}) 2>&1
failures=() skipped=() unmeasured=() took=() first_failed=()
passed_tests=0 skipped_tests=0 failed_tests=0
budget_s=$(awk "BEGIN { print int(60 * $minutes) }")
least_s=5 # in which nothing is begun any more
left_until() {
    local passed
    passed=$(passed_s)
    echo $((passed < $1 ? $1 - passed : 0))
}
left() { left_until $budget_s; }

# Copies the files named here to $OUT: what is there stays where a time limit ends this script.
keep() {
    for file in "$@"; do
        [ -z "${OUT-}" ] || [ ! -f "$file" ] || cp "$file" "$OUT"/
    done
}

# Ends with what failed, was skipped and was not measured, and last with the short table and the goals; keeps the files named here.
conclude() {
    say "finished"
    for failure in "${failures[@]}"; do echo "gpu-check: FAILED: $failure"; done
    for part in "${skipped[@]}"; do echo "gpu-check: skipped: $part"; done
    for what in "${unmeasured[@]}"; do echo "gpu-check: not measured: $what"; done
    if [ $mode = rows ]; then
        [ ${#took[@]} -eq 0 ] || echo "gpu-check: seconds: ${took[*]}"
        echo "gpu-check: tests on the device: $passed_tests passed, $skipped_tests skipped, $failed_tests failed"
    fi
    local but=()
    [ ${#skipped[@]} -eq 0 ] || but+=("what was skipped")
    [ ${#unmeasured[@]} -eq 0 ] || but+=("what was not measured")
    [ ${#failures[@]} -gt 0 ] || echo "gpu-check: all of it passed${but[0]:+, but for ${but[0]}}${but[1]:+ and ${but[1]}}"
    local summary
    for summary in build/gpu-check.rows/*.summary.txt; do
        [ ! -f "$summary" ] || { echo; cat "$summary"; }
    done
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
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[[ $capability =~ ^[0-9]+$ ]] || capability=
architectures() {
    local instructions=
    [ -n "$capability" ] || return
    [ "$capability" -lt 90 ] || instructions=a
    echo "-DCMAKE_CUDA_ARCHITECTURES=$capability$instructions-real"
}

starts() {
    "$1/bench_cuda_step" >/dev/null 2>&1
    [ $? -eq 2 ] # it says how it is used
}

# Takes the programs that --pack built, where they are of these sources and for this GPU, and start here.
take_packed() {
    local why=
    [ -f $pack/programs.tar.xz ] || return
    if [ "$(cat $pack/programs.digest 2>/dev/null)" != "$of_programs" ]; then
        why="they are of other sources"
    elif [ -n "$capability" ] && [ "$capability" != 90 ]; then
        why="they are not for this GPU"
    else
        rm -rf build/gpu-programs
        mkdir build/gpu-programs
        tar -C build/gpu-programs -xJf $pack/programs.tar.xz 2>/dev/null || python3 -m tarfile -e $pack/programs.tar.xz build/gpu-programs
        starts build/gpu-programs || why="they do not start here: $(build/gpu-programs/bench_cuda_step 2>&1 | head -n 1)"
    fi
    [ -z "$why" ] || { echo "gpu-check: the packed programs are not used: $why"; return 1; }
    programs=build/gpu-programs
    say "the packed programs"
}

build() {
    say "build"
    # shellcheck disable=SC2046
    timeout $(($(left) + 1)) cmake --preset gpu-check $(architectures) >build/gpu-check.build.log 2>&1 &&
        timeout $(($(left) + 1)) cmake --build --preset gpu-check >>build/gpu-check.build.log 2>&1
    local code=$?
    if [ $code -eq 0 ]; then
        python3 -B tools/kernel_resources.py --table --allow tests/cuda/spills.txt $tree/libcod_cuda.a >build/gpu-check.resources.txt || failures+=("resources")
        tail -n 1 build/gpu-check.resources.txt
        return
    fi
    if [ $code -eq 124 ]; then
        failures+=("build, which was not done after $minutes minutes")
        unmeasured+=("${rows[@]}")
    else
        tail -n 40 build/gpu-check.build.log
        failures+=("build")
    fi
    conclude build/gpu-check.build.log
}

# What is timed on this machine is known to all processes of this run, and to those of later ones.
export COD_CUDA_CACHE=${COD_CUDA_CACHE:-$PWD/build/gpu-check.choices}
wheels=$(tools/gpu-libraries.sh)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${wheels:+${LD_LIBRARY_PATH:+:}$wheels}"
[ ! -f $pack/libcmocka.so.0 ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$PWD/$pack"

read -r of_all of_programs < <(tools/gpu-digest.sh)
commit=$(commit)
echo "gpu-check: commit $commit"
take_packed || build
bench=$programs/bench_cuda_step
device_tests=()
for program in "$programs"/test_cuda_*_device; do
    [ ! -x "$program" ] || device_tests+=("$(basename "$program" _device)")
done

source tools/gpu-rows.sh

# Where there is no GPU, each of the tests starts and skips itself.
if ! has_gpu; then
    say "nvidia-smi finds no GPU here: every test that needs one skips itself"
    run_tests "$(left)" "${device_tests[@]/%/_device}"
    [ ${#failures[@]} -eq 0 ] && [ $passed_tests -eq 0 ] || { echo "gpu-check: FAILED: ${failures[*]:-tests that passed without a GPU}"; exit 1; }
    echo "gpu-check: $skipped_tests tests start and skip themselves; nothing else was run"
    exit 77
fi

# How rows share the time that is left, which is about what they take: what one does not need goes to those behind it.
weight() {
    case $1 in
        libraries) echo 15 ;;
        profile) echo 30 ;;
        first) echo 40 ;;
        smoke | alone | memcheck | resnet50) echo 45 ;;
        tests | racecheck) echo 70 ;;
        losses) echo 80 ;;
        turns) echo 120 ;;
        networks) echo 200 ;;
    esac
}

results=(build/gpu-check.tests.log build/alone.json build/turns.json build/losses.json build/networks.json build/profile.txt "$COD_CUDA_CACHE")
rm -f build/gpu-check.tests.log build/{alone,turns,losses,networks}.json build/profile.txt
reserve_s=15 # to repeat what fails
weights=$reserve_s
for row in "${rows[@]}"; do weights=$((weights + $(weight "$row"))); done
for row in "${rows[@]}"; do
    case $row in
        turns | networks) [ -n "$pytorch" ] || start_pytorch "$row" ;;
    esac
done
for row in "${rows[@]}"; do
    seconds=$(($(left) * $(weight "$row") / weights))
    weights=$((weights - $(weight "$row")))
    begun=$(passed_s)
    [ $seconds -gt $least_s ] || { unmeasured+=("$row: no time was left"); continue; }
    case $row in
        turns | networks) check_turns "$row" $seconds ;;
        memcheck | racecheck) sanitize "$row" $seconds ;;
        *) "check_$row" $seconds ;;
    esac
    took+=("$row $(($(passed_s) - begun)),")
    keep "${results[@]}"
done
[ $skipped_tests -eq 0 ] || failures+=("$skipped_tests tests that were skipped, although there is a GPU")
[ ${#first_failed[@]} -eq 0 ] || [ "$(left)" -lt $least_s ] || repeat_first_failed "$(left)"
conclude "${results[@]}"
