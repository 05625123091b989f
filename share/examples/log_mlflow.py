"""Logs a run to MLflow: python3 log_mlflow.py RUN [EXPERIMENT]. MLFLOW_TRACKING_URI says where to, such as file:mlruns."""
import json
import pathlib
import sys

import mlflow

run = pathlib.Path(sys.argv[1])
mlflow.set_experiment(sys.argv[2] if len(sys.argv) > 2 else "codistill")
for path in sorted(run.glob("metrics.*.jsonl")):
    with mlflow.start_run(run_name=f"{run.resolve().name}-group{path.name.split('.')[1]}"):
        mlflow.log_artifact(run / "config.yaml")
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # else the run is about to write the rest
                numbers = {key: float(value) for key, value in json.loads(line).items() if isinstance(value, (int, float))}
                mlflow.log_metrics(numbers, step=int(numbers["step"]))
