#!/bin/bash
# Trains 4 groups of 1 rank on synthetic pictures and checks that between start-up and the end no rank made a call that
# could wait for another group. Usage: no_waiting.sh MPIEXEC CODISTILL PMPI_LIBRARY FOLDER
set -euo pipefail
mpiexec=$1 codistill=$2 library=$3 folder=$4

rm -rf "$folder"
mkdir -p "$folder"
cat > "$folder/run.yaml" <<END
name: no-waiting
seed: 1
output: $folder/runs
cluster: {groups: 4, ranks_per_group: 1, threads: 1}
model: {name: srresnet, blocks: 1, channels: 8, scale: 4, norm: none, init: shared}
data: {kind: synthetic, synthetic_count: 10, val_count: 2, patch: 16, batch: 2}
train: {strategy: codistill, steps: 150, rate: 1.0e-3}
distill: {weight: 0.1, burn_in: 20, ramp: 20}
exchange: {period: 10, codec: int8, merge: delay_corrected}
eval: {every: 60}
checkpoint: {every: 75}
END
"$mpiexec" --bind-to none -n 4 env LD_PRELOAD="$library" COD_PMPI_OUT="$folder/calls" "$codistill" train "$folder/run.yaml" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
failed=0
for rank in 0 1 2 3; do
    counts=$(cat "$folder/calls.$rank")
    echo "rank $rank: $counts"
    # Gets were seen, start-up was seen to be counted, and nothing in between.
    [[ $counts =~ ^gets\ [1-9][0-9]*\ before\ [1-9][0-9]*\ during\ 0\ after ]] || failed=1
done
exit $failed
