"""Logs a run to Weights & Biases: python3 log_wandb.py RUN [PROJECT]. With WANDB_MODE=offline it needs no account."""
import json
import pathlib
import sys

import wandb

run, project = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "codistill"
for path in sorted(run.glob("metrics.*.jsonl")):
    name = f"{run.resolve().name}-group{path.name.split('.')[1]}"
    tracked = wandb.init(project=project, group=run.resolve().name, name=name, config={"config.yaml": (run / "config.yaml").read_text()})
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # else the run is about to write the rest
            numbers = {key: value for key, value in json.loads(line).items() if isinstance(value, (int, float))}
            tracked.log(numbers, step=numbers["step"])
    tracked.finish()
