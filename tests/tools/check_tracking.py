"""Weights & Biases and MLflow on what share/examples logs of a run: check_tracking.py CODISTILL -> exit 0 when all is there, 77 where neither package is."""
import importlib.util
import json
import math
import os
import pathlib
import struct
import subprocess
import sys

from train_support import Skip, check, run_cases

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "share" / "examples"


def logged(bench, package, environment):
    """Trains two groups and logs them by the example; the losses of metrics.G.jsonl by group and step."""
    if importlib.util.find_spec(package) is None:
        raise Skip(f"there is no package {package}")
    bench.done("train", "t.yaml", "name=t", "train.strategy=codistill", "cluster.groups=2", "train.steps=20", "log.every=10")
    for group in (0, 1):
        with open(bench.path("runs", "t", f"metrics.{group}.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step": 30, "lo')  # as while the run goes on
    done = subprocess.run([sys.executable, EXAMPLES / f"log_{package}.py", "runs/t", "tried"], cwd=bench.folder, capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)
    check(done.returncode == 0, f"log_{package}.py failed:\n{done.stdout}{done.stderr}")
    lines = [bench.read("runs", "t", f"metrics.{group}.jsonl").decode().splitlines()[:-1] for group in (0, 1)]
    return [{row["step"]: row["loss"] for row in map(json.loads, group)} for group in lines]


def same(found, expected):
    check(found.keys() == expected.keys() and all(math.isclose(found[step], loss, rel_tol=1e-6) for step, loss in expected.items()),
          f"logged: {found}, metrics: {expected}")


def records(data):
    """What a .wandb file holds: 7 bytes, then blocks of 32768 with pieces of records (LevelDB's log), whole or first, middle and last ones."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if at % 32768 > 32768 - 7:
            at += -at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def by_wandb(bench):
    """Offline: the file that `wandb sync` sends has each loss at its step."""
    expected = logged(bench, "wandb", {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": bench.folder})
    from wandb.proto import wandb_internal_pb2
    found = {}
    for path in sorted(pathlib.Path(bench.folder).glob("wandb/offline-run-*/run-*.wandb")):
        losses, name = {}, None
        for data in records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            if "loss" in items:
                losses[items["_step"]] = items["loss"]
        found[name] = losses
    check(set(found) == {"t-group0", "t-group1"}, f"runs {set(found)}")
    for group in (0, 1):
        same(found[f"t-group{group}"], expected[group])


def by_mlflow(bench):
    """A store of files has each loss at its step."""
    address = {"MLFLOW_TRACKING_URI": f"file:{bench.path('mlruns')}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    expected = logged(bench, "mlflow", address)
    os.environ.update(address)
    from mlflow import MlflowClient
    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("tried").experiment_id])
    found = {run.info.run_name: {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "loss")} for run in runs}
    check(set(found) == {"t-group0", "t-group1"}, f"runs {set(found)}")
    for group in (0, 1):
        same(found[f"t-group{group}"], expected[group])
    check([file.path for file in client.list_artifacts(runs[0].info.run_id)] == ["config.yaml"], "the configuration is not there")


if __name__ == "__main__":
    sys.exit(run_cases({"wandb": by_wandb, "mlflow": by_mlflow}, sys.argv[1], sys.argv[2:]))
