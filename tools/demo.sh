#!/usr/bin/env bash
# The whole of Codistill in a few minutes: set up, build, get real photographs, train two groups, evaluate, export, upscale.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

usage() {
    cat <<'HELP'
usage: tools/demo.sh [--data DIR] [--steps N] [--out DIR] [--no-setup] [--help]

Sets up and builds Codistill, takes photographs (Debian's mate-backgrounds, which tools/get-data.sh fetches; or
those of --data DIR), trains configs/sr-demo.yaml on them with two groups of one rank, and shows what came out.

  --data DIR   your own photographs (PNG, JPEG, WebP, TIFF or BMP); a quarter is held out
  --steps N    training steps (2000: about 2 minutes on 2 cores)
  --out DIR    where everything goes (build/demo of this checkout)
  --no-setup   do not look for missing packages
HELP
}

# A path as the caller means it, from here.
from_caller() { case "$1" in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$caller/$1" ;; esac }

data="" steps=2000 out=build/demo setup=yes
while [ $# -gt 0 ]; do
    case "$1" in
    --data | --steps | --out)
        [ $# -ge 2 ] || { echo "demo.sh: $1 needs a value" >&2; exit 2; }
        case "$1" in --data) data=$(from_caller "$2") ;; --steps) steps=$2 ;; --out) out=$(from_caller "$2") ;; esac
        shift 2
        ;;
    --no-setup) setup=no && shift ;;
    -h | --help) usage && exit 0 ;;
    *) echo "demo.sh: there is no option '$1'; see tools/demo.sh --help" >&2 && exit 2 ;;
    esac
done
case "$steps" in '' | *[!0-9]* | 0) echo "demo.sh: --steps '$steps' is not a whole number of at least 1" >&2 && exit 2 ;; esac

say() { printf '\n== %s\n' "$*"; }

if [ "$setup" = yes ]; then
    say "set-up"
    tools/setup.sh
fi

say "build"
mkdir -p build
log=build/demo.log
cmake --preset release >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build --preset release >>"$log" 2>&1 || { cat "$log" >&2; exit 1; }
codistill=$PWD/build/release/codistill
"$codistill" --version

mkdir -p "$out"
if [ -n "$data" ]; then
    [ -d "$data" ] || { echo "demo.sh: --data '$data' is not a folder" >&2; exit 1; }
    photos=$(cd "$data" && pwd)
else
    say "photographs: Debian's mate-backgrounds"
    tools/get-data.sh debian-photos
    photos=$PWD/data/debian-photos
fi
find -L "$photos" -type f \( -iname '*.jpg' -o -iname '*.jpeg' -o -iname '*.png' \) | sort >"$out/all.txt"
count=$(wc -l <"$out/all.txt")
[ "$count" -ge 4 ] || { echo "demo.sh: '$photos' has $count pictures; at least 4 are needed" >&2; exit 1; }
echo "$count pictures in $photos"

# Every fourth picture is kept away from training altogether: the test set.
rm -rf "$out/train" "$out/test" "$out/unseen"
mkdir -p "$out/train" "$out/test"
# Links are numbered: pictures in different folders may have the same name.
number=0
while IFS= read -r photo; do
    number=$((number + 1))
    kind=$([ $((number % 4)) -eq 0 ] && echo test || echo train)
    ln -s "$photo" "$out/$kind/$(printf '%05d' "$number")-$(basename "$photo")"
done <"$out/all.txt"

say "training: two groups, codistillation with delay-corrected merging ($steps steps)"
rm -rf "$out/runs/sr-demo"
"$codistill" train configs/sr-demo.yaml output="$out/runs" data.path="$out/train" data.val_count=2 train.steps="$steps" \
    distill.burn_in=$((steps / 10)) distill.ramp=$((steps / 10)) eval.every=$((steps / 4)) checkpoint.every=0 \
    log.every=$((steps / 10 > 0 ? steps / 10 : 1))
run=$out/runs/sr-demo

say "evaluation on pictures never seen in training (PSNR and SSIM, x4)"
echo "bicubic:" && "$codistill" eval bicubic --data "$out/test" --scale 4
echo "ours:" && "$codistill" eval "$run/final.safetensors" --data "$out/test"

say "export and upscaling"
"$codistill" export "$run/final.safetensors" -o "$out/sr-demo.onnx"
unseen=$(find "$out/test" -mindepth 1 | sort | head -n 1)
"$codistill" upscale "$run/final.safetensors" "$unseen" -o "$out/upscaled" --force

python3 - "$run/summary.json" <<'PY' 2>/dev/null || cat "$run/summary.json"
import json, sys
s = json.load(open(sys.argv[1]))
sent, rival = s["intergroup_bytes"], s["allreduce_intergroup_bytes"]
print(f"\nbetween groups: {sent / 1e6:.2f} MB crossed; allreduce would have sent {rival / 1e6:.0f} MB ({rival / max(sent, 1):.0f} times as much)")
PY

say "where everything is"
cat <<WHERE
  model            $run/final.safetensors   (one of each group beside it)
  ONNX             $out/sr-demo.onnx
  upscaled         $out/upscaled
  side by side     $run/samples/            (low, bicubic, ours, truth)
  figures          $run/summary.json, $run/metrics.0.jsonl, $run/tensorboard/
WHERE
