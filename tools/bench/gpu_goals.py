"""The goals on one H100, and what gpu_steps.py measured beside them."""
import dataclasses
import math
import statistics

# How many times as fast as PyTorch's fastest form a step is to be.
FASTER = {"srresnet-16": 3.5, "srresnet-64": 3.5, "srresnet-256": 3.5, "resnet50-64": 1.0,
          "mlp4-100": 1.2, "mlp4-10000": 1.2, "mlp10-100": 1.2, "mlp10-10000": 1.2}
# What a teacher of the same kind may add to a step.
TEACHER = {"srresnet-16": 0.12, "srresnet-256": 0.30}
# Milliseconds of PyTorch's fastest form on an H100, in a trial before this backend was there: for a first ratio where PyTorch did not run.
TRIAL_MS = {"srresnet-16": 3.28, "srresnet-64": 6.99, "srresnet-256": 23.8}
IDLE = 0.03
FIRST_STEP_S = 5.0
MEMORY = 0.60


@dataclasses.dataclass
class Row:
    """One figure beside its goal; NaN: it was not measured."""
    case: str
    what: str
    figure: float
    goal: float
    form: str  # of both numbers, as of str.format()
    least: bool = False  # the goal is a least value, not a largest one

    def verdict(self):
        if math.isnan(self.figure):
            return "not measured"
        return "reached" if (self.figure >= self.goal if self.least else self.figure <= self.goal) else "MISSED"

    def words(self):
        figure = "-" if math.isnan(self.figure) else self.form.format(self.figure)
        return f"{self.case:14} {self.what:38} {figure:>8}   {'>=' if self.least else '<='} {self.form.format(self.goal):>7}   {self.verdict()}"


def step_ms(result):
    """The median of our steps; NaN where none was timed."""
    return statistics.median(result["ms"].get("ours") or [math.nan])


def fastest(result):
    """PyTorch's fastest form as (name, median of its milliseconds); (None, NaN) where none was timed."""
    rivals = {name: statistics.median(times) for name, times in result["ms"].items() if name != "ours"}
    name = min(rivals, key=rivals.get, default=None)
    return name, rivals.get(name, math.nan)


def idle(result):
    """The part of a step that the ops' times leave over. Each op was timed alone, so that it is an estimate; it is never below 0."""
    return max(0.0, 1 - sum(op["ms"] for op in result["ops"]) / step_ms(result)) if "ops" in result else math.nan


def memory_share(result):
    """Ours, of the peak of PyTorch's fastest form; NaN where that is not known."""
    name, _ = fastest(result)
    peak = result["forms"][name]["peak_mib"] if name else 0
    return result["ours"]["memory_mib"] / peak if peak and "ours" in result else math.nan


def rows(result):
    """The case's figures that have a goal."""
    case, (_, rival) = result["case"], fastest(result)
    found = []
    if case in FASTER:
        found.append(Row(case, "times as fast as PyTorch's fastest", rival / step_ms(result), FASTER[case], "{:.2f}", True))
    if case in TEACHER:
        taught = result.get("teacher")
        added = taught["taught_ms"] / taught["step_ms"] - 1 if taught else math.nan
        found.append(Row(case, "what a teacher adds", added, TEACHER[case], "{:.1%}"))
    return found + [Row(case, "idle, of a step", idle(result), IDLE, "{:.1%}"),
                    Row(case, "first step, s, from the start", result.get("first_again_s", math.nan), FIRST_STEP_S, "{:.2f}"),
                    Row(case, "memory, of PyTorch's", memory_share(result), MEMORY, "{:.0%}")]


def table(results):
    """Lines of text: all figures with their goals, then how many were reached."""
    found = [row for result in results for row in rows(result)]
    verdicts = [row.verdict() for row in found]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("reached", "MISSED", "not measured"))
    return [*(row.words() for row in found), f"goals: {counts}"]
