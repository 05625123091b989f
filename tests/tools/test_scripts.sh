#!/usr/bin/env bash
# The scripts' own promises that need neither network nor build: help, unknown options, what is said when tools lack.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
source tests/support/expect.sh

for script in tools/*.sh tools/bench/*.sh tools/slurm/*.sbatch .ci/run; do
    expect 0 "" bash -n "$script"
done
expect 0 "usage: tools/setup.sh" tools/setup.sh --help
expect 0 "libopenmpi-dev" tools/setup.sh --list
expect 0 "packages are installed" tools/setup.sh --check
expect 0 "packages are installed" tools/setup.sh
expect 2 "unknown option '--frobnicate'" tools/setup.sh --frobnicate
expect 0 "usage: tools/test.sh" tools/test.sh --help
expect 2 "unknown option '--frobnicate'" tools/test.sh --frobnicate
expect 2 "--filter needs" tools/test.sh --filter
expect 2 "--jobs needs" tools/test.sh --jobs none
expect 2 "--mpi needs" tools/test.sh --mpi lam
expect 0 "usage: tools/mutants.sh" tools/mutants.sh --help
expect 0 "usage: tools/package-check.sh" tools/package-check.sh --help
expect 2 "unknown option '--frobnicate'" tools/package-check.sh --frobnicate
expect 1 "there is no package '/nowhere.deb'" tools/package-check.sh /nowhere.deb
expect 2 "the folder of the tests is missing" tools/skipped.sh
expect 1 "there is no /nowhere/ctest.log" tools/skipped.sh /nowhere
expect 2 "unknown option '--frobnicate'" .ci/run --frobnicate

expect 0 "usage: tools/gpu-check.sh" tools/gpu-check.sh --help
expect 2 "say quick, rest, or which rows" tools/gpu-check.sh
expect 2 "there is no 'everything'; there are quick, rest, libraries first" tools/gpu-check.sh everything
expect 2 "unknown option '--frobnicate'" tools/gpu-check.sh --frobnicate
expect 2 "--minutes needs a number" tools/gpu-check.sh --minutes soon
expect 2 "--rehearse goes with --whole" tools/gpu-check.sh --rehearse
expect 2 "'losses' does not go with --whole" tools/gpu-check.sh losses --whole
expect 1 "'/nowhere' lacks photos, set5 or mnist; set COD_DATA" env COD_DATA=/nowhere COD_BUNDLE_PROGRAM=/bin/true tools/gpu-bundle.sh
expect 1 "/nowhere/codistill is not there; build it" env COD_BUNDLE_PROGRAM=/nowhere/codistill tools/gpu-bundle.sh
expect 2 "usage: whole.sh" tools/gpu-whole.sh
expect 2 "unknown option '--frobnicate'" tools/gpu-whole.sh --frobnicate .

# The comparisons, from another folder.
for script in step_vs_pytorch gan_vs_pytorch upscale_vs_onnxruntime niqe_vs_pyiqa; do
    path=$PWD/tools/bench/$script.sh
    expect 0 "usage: tools/bench/$script.sh" env -C / "$path" --help
    expect 2 "unrecognized arguments: --frobnicate" "$path" --frobnicate
    expect 2 "--threads is a list" "$path" --threads 0
    expect 1 "$script: /nowhere/codistill is not there" "$path" --codistill /nowhere/codistill
done
expect 0 "usage: tools/bench/choices.sh" env -C / "$PWD/tools/bench/choices.sh" --help
expect 2 "unrecognized arguments: --frobnicate" tools/bench/choices.sh rule --frobnicate
expect 2 "invalid choice: 'luck'" tools/bench/choices.sh luck
expect 2 "there is no network 'vit'" tools/bench/choices.sh start --codistill /bin/true --network mlp,vit
expect 2 "there is no precision f64" tools/bench/choices.sh start --codistill /bin/true --precision f64
expect 1 "choices: /nowhere/codistill is not there" tools/bench/choices.sh busy --codistill /nowhere/codistill
expect 0 "usage: tools/bench/exchange_net.sh" env -C / "$PWD/tools/bench/exchange_net.sh" --help
expect 2 "there are rates such as" tools/bench/exchange_net.sh --rates fast
expect 1 "/nowhere/codistill is not there" tools/bench/exchange_net.sh --codistill /nowhere/codistill
expect 2 "--groups is 2 or more" tools/bench/exchange_net.sh --groups 1
expect 0 "usage: tools/bench/scale_measured.sh" env -C / "$PWD/tools/bench/scale_measured.sh" --help
expect 2 "is not a list such as 8x1,4x4" tools/bench/scale_measured.sh --layouts 1x4
expect 1 "/nowhere/codistill is not there" tools/bench/scale_measured.sh --memory --codistill /nowhere/codistill
expect 1 "/nowhere/codistill is not there" tools/bench/scale_measured.sh --codistill /nowhere/codistill
expect 0 "usage: tools/bench/crossing.sh" env -C / "$PWD/tools/bench/crossing.sh" --help
expect 2 "confirm needs --target" tools/bench/crossing.sh confirm
expect 1 "crossing.sh quality" tools/bench/crossing.sh plot --quality /nowhere/quality.json
expect 0 "usage: tools/soak.sh" env -C / "$PWD/tools/soak.sh" --help
expect 2 "'3' is no list of two groups' ranks or more" tools/soak.sh --groups 3
expect 2 "not allowed with argument" tools/soak.sh --kills 1 --minutes 1
expect 0 "usage: tools/signals.sh" env -C / "$PWD/tools/signals.sh" --help
expect 2 "'SIGWINCH' is none of SIGINT, SIGTERM" tools/signals.sh --signals SIGINT,SIGWINCH
expect 2 "--tries and --jobs are 1 or more" tools/signals.sh --tries 0
expect 1 "signals: /nowhere/codistill is not there; build it" tools/signals.sh --codistill /nowhere/codistill
expect 1 "soak: /nowhere/codistill is not there" tools/soak.sh --codistill /nowhere/codistill
expect 2 "there is no variant f64-eager" tools/bench/step_vs_pytorch.sh --codistill /bin/true --variants f64-eager
expect 2 "there is no variant f64-eager" tools/bench/gan_vs_pytorch.sh --codistill /bin/true --variants f64-eager
expect 1 "/nowhere/vgg is not there" tools/bench/gan_vs_pytorch.sh --codistill /bin/true --vgg /nowhere/vgg
expect 1 "/nowhere holds no PNG or JPEG pictures" tools/bench/niqe_vs_pyiqa.sh --codistill /bin/true --data /nowhere
expect 2 "--data needs --model" tools/bench/upscale_vs_onnxruntime.sh --codistill /bin/true --data .
expect 2 "is no WIDTHxHEIGHT" tools/bench/upscale_vs_onnxruntime.sh --codistill /bin/true --size 3

# A machine where dpkg-query knows nothing, apt-get fails, and then works: one retry, then a clear word.
fake=$(mktemp -d)
trap 'rm -rf "$fake"' EXIT
printf '#!/bin/sh\nexit 1\n' >"$fake/dpkg-query"
printf '#!/bin/sh\necho "apt-get $*" >>%s/log\nexit 1\n' "$fake" >"$fake/apt-get"
printf '#!/bin/sh\n' >"$fake/sleep"
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done; exec "$@"\n' >"$fake/sudo"
chmod +x "$fake"/*
expect 1 "missing: gcc" env PATH="$fake:$PATH" tools/setup.sh --check
expect 1 "apt-get update failed twice" env PATH="$fake:$PATH" tools/setup.sh
if [ "$(grep -c ' update$' "$fake/log")" -ne 2 ] || grep -q install "$fake/log"; then
    echo "FAILED: expected two updates and no install: $(cat "$fake/log")"
    failed=1
fi
printf '#!/bin/sh\nexit 0\n' >"$fake/apt-get"
expect 1 "still missing after the installation" env PATH="$fake:$PATH" tools/setup.sh

exit $failed
