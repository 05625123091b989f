"""TensorBoard's own reader on what a run writes: check_tensorboard.py CODISTILL -> exit 0 when all is there, 77 where TensorBoard is not."""
import json
import math
import pathlib
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
from train_support import check, run_cases


def scalars(bench):
    """Each loss in metrics.0.jsonl is a scalar at the same step."""
    bench.done("train", "t.yaml", "name=t", "log.every=10", "log.tensorboard=true")
    run = pathlib.Path(bench.path("runs", "t"))
    read = EventAccumulator(str(run / "tensorboard/group0"))
    read.Reload()
    lines = [json.loads(line) for line in (run / "metrics.0.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in lines if "loss" in line}
    names = [name for name in read.Tags()["scalars"] if name.split("/")[-1] == "loss"]
    check(len(names) == 1 and len(expected) >= 2, f"scalars {read.Tags()['scalars']}, losses {expected}")
    found = {event.step: event.value for event in read.Scalars(names[0])}
    check(found.keys() == expected.keys() and all(math.isclose(found[step], loss, rel_tol=1e-6) for step, loss in expected.items()),
          f"TensorBoard reads {found}, metrics.0.jsonl has {expected}")


if __name__ == "__main__":
    sys.exit(run_cases({"scalars": scalars}, sys.argv[1], []))
