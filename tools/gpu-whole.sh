#!/usr/bin/env bash
# Runs inside an unpacked bundle (tools/gpu-bundle.sh): trains the demo with two groups on one card, compares strategies on MNIST, two
# groups on one card, upscales a picture, and looks whether what came out can be right.
#
# usage: whole.sh [--device NAME] [--rehearse] FOLDER
#   --device NAME   what computes: cuda or cpu (cuda)
#   --rehearse      a few steps of each, for a machine without a GPU: what needs many steps is not demanded of them
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
device=cuda steps=6000 classes_steps=1000 gain=0.3 least=88
while [ $# -gt 1 ]; do
    case $1 in
        --device) device=$2 && shift ;;
        --rehearse) steps=60 classes_steps=200 gain=-1 least=70 ;;
        *) echo "whole: unknown option '$1'" >&2; exit 2 ;;
    esac
    shift
done
[ $# -eq 1 ] && [ -d "$1" ] || { echo "usage: whole.sh [--device NAME] [--rehearse] FOLDER, which must be there" >&2; exit 2; }
out=$(cd "$1" && pwd)
failures=()
say() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

# Runs the command, its words in a log, of which the end is shown where it fails.
run() {
    local name=$1
    shift
    if "$here/codistill" "$@" >"$out/$name.log" 2>&1; then
        # The tuner's warning: a library and our kernels do not agree, and ours may be the wrong ones.
        ! grep "is not used: its results" "$out/$name.log" || failures+=("$name: a library's results are refused")
        return 0
    fi
    echo "whole: 'codistill $*' failed; the end of $out/$name.log:"
    tail -n 15 "$out/$name.log"
    failures+=("$name")
    return 1
}

train_demo() {
    say "the demo: two groups on one device, $steps steps"
    run train train "$here/configs/sr-demo.yaml" output="$out" data.path="$here/data/photos" cluster.device="$device" train.steps=$steps \
        distill.burn_in=$((steps / 10)) distill.ramp=$((steps / 10)) eval.every=$((steps / 2)) checkpoint.every=0 log.every=$((steps / 6)) || return
    for model in bicubic "$out/sr-demo/final.safetensors"; do
        local name
        name=eval-$(basename "$model" .safetensors)
        "$here/codistill" eval "$model" --data "$here/data/set5" --scale 4 --json --device "$([ "$model" = bicubic ] && echo cpu || echo "$device")" \
            >"$out/$name.json" 2>"$out/$name.log" || { tail -n 5 "$out/$name.log"; failures+=("$name"); return; }
    done
    python3 - "$out" "$gain" <<'PY' || failures+=("the demo's PSNR")
import json, sys
out, gain = sys.argv[1], float(sys.argv[2])
read = lambda name: json.load(open(f"{out}/{name}"))
psnr = {name: read(f"eval-{name}.json")["mean"]["psnr_y"] for name in ("bicubic", "final")}
summary = read("sr-demo/summary.json")
print(f"Set5 x4: {psnr['final']:.2f} dB, bicubic {psnr['bicubic']:.2f} dB; {summary['steps']} steps in {summary['wall_s']:.1f} s")
sys.exit(0 if psnr["final"] >= psnr["bicubic"] + gain else f"whole: less than {gain} dB above bicubic")
PY
}

compare_classes() {
    say "MNIST: single, allreduce and codistill compared, two groups on one device, $classes_steps steps each"
    run compare compare "$here/configs/compare-mnist.yaml" --strategies single,allreduce,codistill --seeds 1 output="$out" \
        data.path="$here/data/mnist" cluster.groups=2 data.items_per_group=2000 cluster.device="$device" train.steps=$classes_steps \
        distill.burn_in=$((classes_steps / 10)) distill.ramp=$((classes_steps / 10)) || return
    python3 - "$out/islands-compare/compare.json" "$least" <<'PY' || failures+=("accuracy on MNIST")
import json, sys
least, arms = float(sys.argv[2]), json.load(open(sys.argv[1]))["arms"]
runs = [(arm["name"], run) for arm in arms for run in arm["runs"]]
for name, run in runs:
    print(f"{name:12} {run.get('quality', float('nan')):5.1f} % right, {run.get('wall_s', float('nan')):6.1f} s")
wrong = {"single", "allreduce", "codistill"} - {name for name, run in runs if run.get("quality", 0) >= least}
sys.exit(f"whole: missing, or below {least} % right: {', '.join(sorted(wrong))}" if wrong else 0)
PY
}

upscale_picture() {
    say "a picture upscaled"
    local picture
    picture=$(find "$here/data/photos" -name '*.jpg' | sort | tail -n 1)
    run upscale upscale "$out/sr-demo/final.safetensors" "$picture" -o "$out/upscaled.png" --force --device "$device" || return
    python3 - "$out/upscaled.png" "$picture" <<'PY' || failures+=("the upscaled picture")
import struct, sys
def jpeg_size(data):
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    height, width = struct.unpack(">HH", data[at + 5:at + 9])
    return width, height
png = open(sys.argv[1], "rb").read()
size, wanted = struct.unpack(">II", png[16:24]), tuple(4 * n for n in jpeg_size(open(sys.argv[2], "rb").read()))
print(f"{size[0]} x {size[1]} pixels, {len(png)} bytes")
sys.exit(0 if size == wanted and len(png) > size[0] * size[1] / 20 else f"whole: expected {wanted} pixels, and more than one colour")
PY
}

# Where the bundle was built they lay elsewhere.
wheels=$("$here/libraries.sh")
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${wheels:+${LD_LIBRARY_PATH:+:}$wheels}"
"$here/codistill" --version || { echo "whole: the packed command does not start here"; exit 1; }
train_demo
compare_classes
[ -f "$out/sr-demo/final.safetensors" ] && upscale_picture
say "finished"
for failure in "${failures[@]}"; do echo "whole: FAILED: $failure"; done
[ ${#failures[@]} -eq 0 ]
