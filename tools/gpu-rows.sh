# The rows of tools/gpu-check.sh, which reads this file: each function has so many seconds, and adds to failures, skipped and unmeasured.
# shellcheck shell=bash disable=SC2034,SC2154

# The word of the tuner's warning: a library and our kernels do not agree, and ours may be the wrong ones.
refused="is not used: its results"

# Runs a command for at most so many seconds, its output in a file, too. Lines `not measured: …` of it are collected. @return 124: cut off
limited() {
    local seconds=$1 output=$2 line code
    shift 2
    timeout -k 5 "$seconds" "$@" 2>&1 | tee "$output"
    code=${PIPESTATUS[0]}
    while IFS= read -r line; do unmeasured+=("${line#not measured: }"); done < <(grep '^not measured: ' "$output")
    return "$code"
}

# The code of a script that collects what it does not measure, what the script is for, and its command.
judge() {
    local code=$1 what=$2
    shift 2
    case $code in
        0 | 3) ;;
        124 | 137) unmeasured+=("$what, all of which were cut off") ;;
        *)
            failures+=("$what")
            [ ${#first_failed[@]} -gt 0 ] || first_failed=("$@") ;;
    esac
}

# One test, until a given second; says and keeps how it ended.
run_test() {
    local name=$1 end=$2 log=build/gpu-check.rows/$1.log begun code verdict seconds
    begun=$(passed_s)
    seconds=$(left_until "$end")
    [ "$seconds" -ge $least_s ] || { echo "$name not-run" >>build/gpu-check.rows/tests.txt; return; }
    timeout -k 5 "$seconds" env COD_CUDA_CONVOLUTION=fixed COD_CPU_CONVOLUTION=fixed "$programs/$name" >"$log" 2>&1
    code=$?
    case $code in
        0) verdict=passed ;;
        77) verdict=skipped ;;
        124 | 137) verdict=cut-off ;;
        *) verdict=failed ;;
    esac
    grep -q "$refused" "$log" && verdict=failed
    printf '%-8s %s, %d s\n' $verdict "$name" $(($(passed_s) - begun))
    [ $verdict != failed ] || { echo "-- $name ended with $code:"; tail -n 25 "$log"; }
    echo "$name $verdict" >>build/gpu-check.rows/tests.txt
}

# Tests, eight at a time, for so many seconds together.
run_tests() {
    local end=$(($(passed_s) + $1)) name verdict
    shift
    rm -f build/gpu-check.rows/tests.txt
    (
        for name in "$@"; do
            while [ "$(jobs -rp | wc -l)" -ge 8 ]; do wait -n; done
            run_test "$name" $end &
        done
        wait
    )
    while read -r name verdict; do
        [ ! -f "build/gpu-check.rows/$name.log" ] || { echo "== $name, $verdict"; cat "build/gpu-check.rows/$name.log"; } >>build/gpu-check.tests.log
        case $verdict in
            passed) passed_tests=$((passed_tests + 1)) ;;
            skipped)
                case $name in
                    *_device) skipped_tests=$((skipped_tests + 1)) ;;
                    *) skipped+=("$name: $(tail -n 1 "build/gpu-check.rows/$name.log")") ;;
                esac ;;
            failed)
                failed_tests=$((failed_tests + 1))
                failures+=("$name")
                [ ${#first_failed[@]} -gt 0 ] || first_failed=(env COD_CUDA_CONVOLUTION=fixed "$programs/$name") ;;
            *) unmeasured+=("$name: ${verdict/-/ }") ;;
        esac
    done <build/gpu-check.rows/tests.txt
}

check_libraries() {
    say "libraries"
    limited "$1" build/gpu-check.rows/libraries.log python3 - <<'PY'
import ctypes
WANTED = {"libcudnn.so.9": ("cudnnGetVersion", "convolutions are our own"), "libcublasLt.so.13 libcublasLt.so.12": ("cublasLtGetVersion", "linear layers are our own"),
          "libnvrtc.so.13 libnvrtc.so.12": ("", "cuDNN's engines that are compiled when they run are missing"), "libnccl.so.2": ("", "averages of several GPUs go through MPI")}
for names, (version, without) in WANTED.items():
    for name in names.split():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        call = getattr(library, version or "absent", None)
        if call:
            call.restype = ctypes.c_size_t
        print(f"{name} {call() if call else ''}")
        break
    else:
        print(f"not measured: {names.split()[0]} was not found: {without}")
PY
    [ $? -eq 0 ] || failures+=("libraries")
    [ ! -x "$programs/test_cuda_library" ] || run_tests "$1" test_cuda_library
}

# Each way of running with more of what only a GPU shows: kernels one by one; a recording; kernels that begin before the one ahead has ended.
check_first() {
    local end=$(($(passed_s) + $1)) ways=3 setting code command
    for setting in "COD_CUDA_SYNC=1 COD_CUDA_CHAIN=0" "COD_CUDA_CHAIN=0" ""; do
        say "losses of four steps${setting:+ with $setting}"
        # shellcheck disable=SC2206
        command=(env COD_CUDA_CONVOLUTION=fixed $setting python3 -B tools/bench/gpu_losses.py --bench "$bench" --cases srresnet-small,mlp --steps 4
                 --device none --known $pack/losses.json)
        limited $(($(left_until "$end") / ways + 1)) build/gpu-check.rows/first.log "${command[@]}"
        code=$?
        ways=$((ways - 1))
        judge $code "the first steps${setting:+ with $setting}" "${command[@]}"
    done
}

smoke=(parity fused narrow training library)
check_smoke() {
    say "smoke: ${smoke[*]}"
    local names=("${smoke[@]/#/test_cuda_}")
    run_tests "$1" "${names[@]/%/_device}"
}

check_tests() {
    local name names=()
    for name in "${device_tests[@]}"; do
        [[ " ${smoke[*]} resnet50 " = *" ${name#test_cuda_} "* ]] || names+=("${name}_device")
    done
    say "tests on the device, against ref"
    run_tests "$1" "${names[@]}"
}

check_resnet50() {
    say "ResNet-50 against ref"
    run_tests "$1" test_cuda_resnet50_device
}

# gpu_steps.py for a row, its cases, forms of PyTorch, and what else it takes.
steps_command() {
    local row=$1 cases=$2 forms=$3
    shift 3
    steps=(python3 -B tools/bench/gpu_steps.py --bench "$bench" --cases "$cases" --forms "$forms" --json build/$row.json --commit "$commit" "$@")
}

check_alone() {
    say "our steps alone, without timed choices"
    pause_pytorch STOP
    steps_command alone srresnet-16,srresnet-256,srresnet-64 "" --codes "" --seconds $(($1 - least_s))
    limited "$1" build/gpu-check.rows/alone.log env COD_CUDA_CONVOLUTION=fixed "${steps[@]}"
    judge $? "our steps alone" env COD_CUDA_CONVOLUTION=fixed "${steps[@]}"
    pause_pytorch CONT
}

turns_of() {
    case $1 in
        turns) steps_command turns srresnet-16,srresnet-256,srresnet-64 graph --codes "" --summary build/gpu-check.rows/turns.summary.txt ;;
        networks) steps_command networks mlp4-100,mlp4-10000,mlp10-100,mlp10-10000,resnet50-64 eager,graph --summary build/gpu-check.rows/networks.summary.txt ;;
    esac
}

# PyTorch compiles for a minute or two, on processors that nothing else needs: from the start on, for the row that will need it first.
pytorch=
start_pytorch() {
    turns_of "$1"
    rm -f build/gpu-check.rows/begin
    set -m # in a group of processes of its own, to be stopped and ended together
    "${steps[@]}" --begin build/gpu-check.rows/begin >"build/gpu-check.rows/$1.log" 2>&1 </dev/null &
    set +m
    pytorch=$! pytorch_row=$1
    trap 'kill -KILL -- -$pytorch 2>/dev/null' EXIT
}
pause_pytorch() { [ -z "$pytorch" ] || kill "-$1" -- "-$pytorch" 2>/dev/null; }

check_turns() {
    local row=$1 what="times of training steps, in turns with PyTorch's" code=124 line
    say "$what"
    [ "$pytorch_row" = "$row" ] || start_pytorch "$row"
    echo $(($2 - least_s)) >build/gpu-check.rows/begin
    timeout -k 5 "$2" tail -n +1 -f --pid=$pytorch "build/gpu-check.rows/$row.log"
    if ! kill -0 $pytorch 2>/dev/null; then
        wait $pytorch
        code=$?
    fi
    kill -KILL -- -$pytorch 2>/dev/null
    pytorch= pytorch_row=
    while IFS= read -r line; do unmeasured+=("${line#not measured: }"); done < <(grep '^not measured: ' "build/gpu-check.rows/$row.log")
    turns_of "$row"
    judge $code "$what ($row)" "${steps[@]}" --forms ""
}

# Two steps of networks that have all kinds of layers.
small_steps=(
    "srresnet|blocks=1 channels=64|1 8 8 3|bf16" "srresnet|blocks=1 channels=16|1 5 7 3|f32"
    "resnet18|height=32 width=32 channels=3 classes=10 features=16|2 32 32 3|bf16"
    "mlp|height=1 width=1 channels=16 classes=10 hidden=64|4 1 1 16|bf16"
)

# What comes with the toolkit, but need not be in PATH.
toolkit_program() { command -v "$1" || ls "/usr/local/cuda/bin/$1" /opt/nvidia/nsight-compute/*/"$1" 2>/dev/null | tail -n 1; }

sanitize() {
    local tool=$1 seconds=$2 sanitizer entry model options shape kind what i code jobs=()
    say "compute-sanitizer, $tool, two steps of four networks"
    sanitizer=$(toolkit_program compute-sanitizer)
    [ -n "$sanitizer" ] || { skipped+=("$tool, as compute-sanitizer is missing"); return; }
    for i in "${!small_steps[@]}"; do
        IFS='|' read -r model options shape kind <<<"${small_steps[i]}"
        # shellcheck disable=SC2086
        COD_CUDA_CONVOLUTION=fixed timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 9 \
            "$bench" losses "$model" "$options" $shape cuda "$kind" 2 >"build/gpu-check.rows/$tool-$i.log" 2>&1 &
        jobs+=($!)
    done
    for i in "${!small_steps[@]}"; do
        IFS='|' read -r model options shape kind <<<"${small_steps[i]}"
        what="$tool on $model of $shape in $kind"
        wait "${jobs[i]}"
        code=$?
        if [ $code -eq 124 ] || [ $code -eq 137 ]; then
            unmeasured+=("$what: cut off")
        elif [ $code -ne 0 ]; then
            echo "-- $what:"
            tail -n 30 "build/gpu-check.rows/$tool-$i.log"
            failures+=("$what")
        fi
    done
}

check_losses() {
    say "losses of 100 steps from equal weights on equal batches"
    local command=(python3 -B tools/bench/gpu_losses.py --bench "$bench" --json build/losses.json --commit "$commit" --known $pack/losses.json)
    limited "$1" build/gpu-check.rows/losses.log "${command[@]}" --seconds $(($1 - least_s))
    judge $? losses "${command[@]}"
}

check_profile() {
    say "Nsight Compute on the kernel of most 3x3 convolutions"
    local profiler code
    profiler=$(toolkit_program ncu)
    [ -n "$profiler" ] || { skipped+=("profile, as ncu is missing"); return; }
    pause_pytorch STOP
    COD_CUDA_SYNC=1 COD_CUDA_CONVOLUTION=fixed timeout -k 5 "$1" "$profiler" --clock-control none --set full --kernel-name 'regex:conv3_(run|wgmma)' --launch-skip 8 \
        --launch-count 4 "$bench" losses srresnet "blocks=16 channels=64" 16 24 24 3 cuda bf16 1 >build/profile.txt 2>&1
    code=$?
    pause_pytorch CONT
    grep -E '^  conv3_|Duration|Compute \(SM\) Throughput|Memory Throughput|Registers Per|Achieved Occupancy' build/profile.txt
    case $code in
        0) grep -q Duration build/profile.txt || unmeasured+=("profile: ncu profiled no kernel; see build/profile.txt") ;;
        *) tail -n 5 build/profile.txt && unmeasured+=("profile: ncu ended with $code") ;;
    esac
}

# Each layer alone, for its name; a tuner's choice would be another one.
repeat_first_failed() {
    say "what failed first, with COD_CUDA_SYNC=1: ${first_failed[*]}"
    timeout -k 5 "$1" env COD_CUDA_SYNC=1 "${first_failed[@]}" >build/gpu-check.rows/repeat.log 2>&1
    echo "it ends with $?"
    tail -n 25 build/gpu-check.rows/repeat.log
}
