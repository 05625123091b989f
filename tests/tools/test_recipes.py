#!/usr/bin/env python3
"""A recipe of two networks under every strategy that takes it, end to end: python3 test_recipes.py TOY_JOB [CASE ...]"""

import json
import os
import re
import sys

from train_support import MPIEXEC, check, check_near_ref, floats, longer_and_longer, parse_safetensors, read_safetensors, run_cases

STEPS, EVERY, KILLED_AT = 18, 4, 14  # checkpoints lie 4 steps apart; at the kill each group has one, if not the same

CONFIG = f"""\
name: t
cluster: {{threads: 1, teardown_timeout_s: 600}}
model: {{name: cnn, stages: [6, 8], convolutions: 1}}
data: {{kind: synthetic, synthetic_count: 210, synthetic_shape: [4, 4, 2], synthetic_classes: 3, batch: 6, threads: 1}}
train: {{recipe: toy, strategy: single, steps: {STEPS}, rate: 1.0e-2, precision: f32, ema: 0.9, deterministic: true}}
distill: {{burn_in: 3, ramp: 3}}
exchange: {{period: 4, lag_steps: 2, min_interval_ms: 0}}
local_sgd: {{period: 5}}
diloco: {{period: 5}}
eval: {{every: 6}}
checkpoint: {{every: {EVERY}, keep: 100}}
log: {{every: 1, tensorboard: false, samples: 0}}
"""

TWO = ["cluster.groups=2", "data.placement=disjoint"]
TWO_BY_TWO = [*TWO, "cluster.ranks_per_group=2"]
# Ranks, overrides. Between them: each strategy that takes the recipe, a critic that rests, mini-batches that are seen twice.
SETUPS = {
    "single": (1, ["train.strategy=single", "toy.critic_every=2"]),
    "allreduce": (2, ["train.strategy=allreduce", "cluster.ranks_per_group=2"]),
    "accumulate": (2, ["train.strategy=allreduce", "cluster.ranks_per_group=2", "train.accumulate=2", "toy.critic_every=2",
                       "train.allreduce_codec=int8"]),
    "codistill": (4, ["train.strategy=codistill", *TWO_BY_TWO]),
    "distill": (4, ["train.strategy=codistill", *TWO_BY_TWO, "exchange.merge=none", "distill.inputs=mixup", "train.accumulate=2"]),
    "local-sgd": (2, ["train.strategy=local_sgd", *TWO, "toy.critic_every=2"]),
    "diloco": (4, ["train.strategy=diloco", *TWO_BY_TWO]),
}
LOSSES = ["task", "adversarial", "critic_fake", "critic_real"]


def groups_of(overrides):
    return next((int(word.split("=")[1]) for word in overrides if word.startswith("cluster.groups=")), 1)


def job(bench, output, ranks, *overrides, kill_at=None, config="toy.yaml", environment=None):
    bench.write("toy.yaml", CONFIG)
    command = [] if ranks == 1 else [MPIEXEC, "--bind-to", "none", "-n", str(ranks)]
    environment = dict(environment or {})
    if kill_at is not None:
        environment["TOY_KILL_AT"] = str(kill_at)
    return bench.run(config, f"output={output}", *overrides, command=command, environment=environment)


def trained(bench, output, ranks, *overrides, **options):
    result = job(bench, output, ranks, *overrides, **options)
    check(result.code == 0, "training failed", result)
    return result


def checkpoint(bench, output, step, part):
    return read_safetensors(bench.path(output, "t", "checkpoints", f"step-{step:09d}", f"{part}.safetensors"))


def metrics(bench, output, group):
    return [json.loads(line) for line in bench.read(output, "t", f"metrics.{group}.jsonl").splitlines()]


def summary_of(bench, output):
    with open(bench.path(output, "t", "summary.json"), encoding="utf-8") as file:
        return json.load(file)


def results_of(bench, output):
    return summary_of(bench, output)["group_results"]


def same_checkpoints(bench, step):
    folders = [bench.path(output, "t", "checkpoints", f"step-{step:09d}") for output in "ab"]
    files = sorted(os.listdir(folders[0]))
    check(files == sorted(os.listdir(folders[1])), f"step {step}, other files: {files}, {sorted(os.listdir(folders[1]))}")
    for file in files:
        first, second = (read_safetensors(os.path.join(folder, file)) for folder in folders)
        check(first.keys() == second.keys(), f"step {step}, {file}: other tensors")
        other = [tensor for tensor in first if first[tensor] != second[tensor]]
        check(not other, f"step {step}, {file}: {other} differ")


def same_metrics(bench, group, resumed):
    """Losses are known two steps late, so the first two lines after a resume say nothing of them."""
    whole, parts = (metrics(bench, output, group) for output in "ab")
    check([line["step"] for line in parts] == list(range(1, STEPS + 1)), f"lines of {[line['step'] for line in parts]}")
    for a, b in zip(whole, parts):
        check(a["lr"] == b["lr"] and a["lr.critic"] == b["lr.critic"], f"rates: {a}, {b}")
        for key in ["task_loss", *(f"loss.{name}" for name in LOSSES)]:
            untold = b[key] is None and resumed < b["step"] <= resumed + 2
            check(a[key] == b[key] or untold, f"group {group}, step {a['step']}: {key} is {a[key]} and {b[key]}")


def check_saved(bench, output, group):
    """Each set has its values and its optimiser's states, under names of its own."""
    saved = checkpoint(bench, output, STEPS, f"group-{group}")
    check({"values", "adam_m", "adam_v", "ema", "critic.values", "critic.momentum", "critic.ema"} <= saved.keys(), f"{saved.keys()}")
    check(not {"momentum", "critic.adam_m", "critic.adam_v"} & saved.keys(), f"{saved.keys()}")
    check(any(floats(saved["critic.momentum"])), "the critic was not trained")


def check_final(bench, output):
    header, _ = parse_safetensors(bench.path(output, "t", "final.safetensors"))
    shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    check(shapes["features.0.weight"] == [6, 2, 3, 3] and shapes["classifier.weight"] == [3, 8], f"{shapes}")
    check(shapes["features.1.running_mean"] == [6] and len(shapes) == 12, f"{shapes}")


def check_groups(bench, output, setup):
    """Models meet, each critic stays with its group."""
    groups = [checkpoint(bench, output, STEPS, f"group-{group}") for group in range(2)]
    check(groups[0]["critic.values"] != groups[1]["critic.values"], "the critics are one")
    results = results_of(bench, output)
    if setup in ("local-sgd", "diloco"):
        check(groups[0]["values"] == groups[1]["values"], "the models are not one at the last meeting")
        check(checkpoint(bench, output, EVERY, "group-0")["values"] != checkpoint(bench, output, EVERY, "group-1")["values"],
              "the models are one before they meet")
    else:
        check(all((result["merges"] > 0) == (setup == "codistill") and result["teacher_switches"] > 0 for result in results), f"{results}")
        check(any(line["distill_loss"] for line in metrics(bench, output, 1)), "nothing was taught")


def check_metrics(bench, output, group, every):
    """Losses have names, and are told of the steps that they were computed in."""
    for line in metrics(bench, output, group)[3:]:
        check(all(line[f"loss.{name}"] > 0 for name in ("task", "adversarial")) and line["loss.task"] == line["task_loss"], f"{line}")
        judged = (line["step"] - 3) % every == 0 or line["step"] == STEPS
        check(all((line[f"loss.critic_{kind}"] is not None) == judged for kind in ("fake", "real")), f"{line}")
    rates = [line["lr.critic"] for line in metrics(bench, output, group)]
    check([round(rate, 6) for rate in rates] == [0.0125, 0.025, 0.0375, *[0.05] * (STEPS - 3)], f"{rates}")


def goes_on(setup):
    """Killed and started again, a run ends with the bits of one that was left alone."""
    def case(bench):
        ranks, overrides = SETUPS[setup]
        trained(bench, "a", ranks, *overrides)
        result = job(bench, "b", ranks, *overrides, kill_at=KILLED_AT)
        check(result.code != 0 and not os.path.exists(bench.path("b", "t", "final.safetensors")), "it was not killed", result)
        result = trained(bench, "b", ranks, *overrides)
        resumed = [int(step) for step in re.findall(r"resumed at step (\d+)", result.err)]
        check(len(resumed) == groups_of(overrides) and all(0 < step <= KILLED_AT for step in resumed), "it did not go on", result)
        for step in range(EVERY, STEPS, EVERY):
            if step >= max(resumed):
                same_checkpoints(bench, step)
        same_checkpoints(bench, STEPS)
        check(bench.read("a", "t", "final.safetensors") == bench.read("b", "t", "final.safetensors"), "final.safetensors differs")
        for group in range(groups_of(overrides)):
            same_metrics(bench, group, resumed[0])
            check_metrics(bench, "a", group, 2 if "toy.critic_every=2" in overrides else 1)
            check_saved(bench, "a", group)
        if groups_of(overrides) == 2:
            check_groups(bench, "a", setup)
        check_final(bench, "a")
    return case


def learns(bench):
    """Both losses of the model count: the task is learnt, and a greater weight makes the critic take more for the truth."""
    fixed = ["train.backend=ref", "train.steps=400", "log.every=50", "toy.critic_every=1"]
    trained(bench, "weak", 1, *fixed, "toy.adversarial=0.01")
    trained(bench, "strong", 1, *fixed, "toy.adversarial=1")
    weak, strong = metrics(bench, "weak", 0), metrics(bench, "strong", 0)
    summary = summary_of(bench, "weak")
    check([summary["recipe"], sorted(summary["losses"])] == ["toy", sorted(LOSSES)], f"{summary}")
    check([(s["name"], s["optimiser"], s["travels"]) for s in summary["sets"]] == [("model", "adam", True), ("critic", "sgd", False)],
          f"{summary['sets']}")
    for lines in (weak, strong):
        check(lines[-1]["loss.task"] < 0.4 < 0.8 < lines[0]["loss.task"], f"the task: {lines}")
        check(lines[-1]["accuracy"] > 60 and lines[-1]["loss.critic_real"] < 0.693, f"{lines[-1]}")
    taken, more = (sum(line["loss.adversarial"] for line in lines) / len(lines) for lines in (weak, strong))
    check(more < taken - 0.03, f"the adversarial loss is {more} with weight 1, and {taken} with 0.01")


def leaves_the_model_alone(bench):
    """With an adversarial loss that vanishes in rounding, the model is that of `supervised` to the bit, and no more bytes travel."""
    for setup in ("accumulate", "codistill"):
        ranks, overrides = SETUPS[setup]
        exact = [override for override in overrides if override != "train.allreduce_codec=int8"]  # whose blocks begin elsewhere
        trained(bench, f"{setup}-toy", ranks, *exact, "toy.adversarial=1e-30")
        trained(bench, f"{setup}-one", ranks, *exact, "train.recipe=supervised")
        for group in range(groups_of(overrides)):
            toy, one = (checkpoint(bench, f"{setup}-{which}", STEPS, f"group-{group}") for which in ("toy", "one"))
            for tensor in ("values", "adam_m", "adam_v", "ema"):
                check(toy[tensor] == one[tensor], f"{setup}, group {group}: '{tensor}' differs")
            toy, one = (metrics(bench, f"{setup}-{which}", group)[-1] for which in ("toy", "one"))
            for key in ("task_loss", "accuracy", "published_bytes", "pulled_bytes", "intergroup_bytes"):
                check(toy[key] == one[key], f"{setup}, group {group}: {key} is {toy[key]}, and {one[key]} of supervised")


# What a teacher's step may need besides: other pictures, turned; its class priors, in turn and mixed.
NO_REFERENCE = ["train.strategy=codistill", "cluster.groups=2", "exchange.merge=none", "distill.inputs=no_reference", f"train.steps={STEPS}",
                "train.deterministic=true"]
PRIORS = ["train.strategy=codistill", "cluster.groups=3", "exchange.merge=none", "data.placement=dirichlet", "data.alpha=0.1",
          "train.prior_correction=true"]
# A model that learns in every second step only, from two teachers in turn.
SELDOM = ["train.strategy=codistill", "cluster.groups=3", "exchange.merge=none", "toy.model_every=2"]
PIPELINE = ["train.recipe=supervised", "train.strategy=model_parallel", "cluster.ranks_per_group=3", "train.accumulate=4", "train.clip_norm=1"]
SERVER = ["train.recipe=supervised", "train.strategy=parameter_server", "cluster.ranks_per_group=3"]


def on_a_device(bench):
    """On a backend that keeps memory from the host and runs late, the bits of the one that it wraps; a violation fails the run."""
    runs = [(setup, *SETUPS[setup]) for setup in ("single", "accumulate", "codistill", "distill", "diloco")]
    runs += [("no-reference", 2, NO_REFERENCE), ("priors", 3, PRIORS), ("priors-mixed", 3, [*PRIORS, "distill.teachers_per_step=2"]),
             ("seldom", 3, SELDOM), ("pipeline", 3, PIPELINE), ("server", 3, SERVER)]
    for name, ranks, overrides in runs:
        outputs = [f"{name}-{backend}" for backend in ("ref", "late")]
        for output, backend in zip(outputs, ("ref", "late")):
            trained(bench, output, ranks, *overrides, f"train.backend={backend}", config="t.yaml" if overrides is NO_REFERENCE else "toy.yaml")
        for group in range(groups_of(overrides)):
            first, second = (checkpoint(bench, output, STEPS, f"group-{group}") for output in outputs)
            check(first == second, f"{name}, group {group}: 'late' has other bits than 'ref'")
    for results in (results_of(bench, f"seldom-{backend}") for backend in ("ref", "late")):
        taught = [peer["weight"] > 0 and peer["teacher_loss"] is not None for r in results for peer in r["peers"]]
        check(taught == [True] * 6, f"not every peer has taught: {results}")


FRAGMENTS = ["exchange.fragments=2", "exchange.chunk_values=256", "exchange.lag_steps=1", "exchange.key_every=2"]
# What the emulated GPU trains: sub-steps of both networks or of one alone, each frozen while the other is trained, and what teachers and meetings add.
GPU_SETUPS = {
    "single": (1, ["train.strategy=single", "toy.critic_every=2"]),
    "codistill": (2, ["train.strategy=codistill", *TWO]),
    "seldom": (1, ["train.strategy=single", "toy.model_every=2", "train.accumulate=2", "train.clip_norm=1"]),
    "allreduce": SETUPS["allreduce"],
    "distill": (2, ["train.strategy=codistill", *TWO, "exchange.merge=none", "distill.inputs=mixup", "train.accumulate=2"]),
    "local-sgd": SETUPS["local-sgd"],
}
# What groups exchange, and how the ranks of one average, beside what those above do.
GPU_EXCHANGES = {
    "fragments": (2, ["train.strategy=codistill", *TWO, *FRAGMENTS]),
    "unlike": (2, ["train.strategy=codistill", "cluster.groups=[{ranks: 1, model: {stages: [12, 8]}}, {ranks: 1}]"]),
    "gossip": (3, ["train.strategy=codistill", "cluster.groups=3", "exchange.merge=average", "exchange.peers=ring", "distill.weight=0"]),
    "coded": SETUPS["accumulate"],
    "hierarchical": (3, ["train.strategy=allreduce", "cluster.ranks_per_group=3", "train.allreduce=hierarchical"]),
}
# Layers of 16 channels have kernels for 8-bit integers. After each switch a teacher predicts once in floats, to observe ranges, then on integers.
GPU_TEACHERS = ["train.strategy=codistill", *TWO, *FRAGMENTS, "exchange.teacher_fragments=whole", "exchange.merge=none", "model.stages=[16, 16]"]
SET_WEIGHTS = ("values", "ema", "critic.values", "critic.ema")
SET_STATES = ("adam_m", "adam_v", "critic.momentum")


def trained_near_ref(bench, name, ranks, overrides, bounds, precision="f32", environment=None):
    """Trains on `ref` and on the emulated GPU; what the second said."""
    trained(bench, f"{name}-ref", ranks, *overrides, "eval.every=0", "train.backend=ref")
    result = trained(bench, f"{name}-cuda", ranks, *overrides, "eval.every=0", "cluster.device=cuda", f"train.precision={precision}", environment=environment)
    groups = results_of(bench, f"{name}-cuda")
    check(all(group["device"].startswith("GPU 0 (GPU-00000000): emulated GPU") for group in groups), f"{name}: another device")
    check_near_ref(bench, f"{name}-ref/t", f"{name}-cuda/t", name, STEPS, len(groups), bounds)
    teaches = "train.strategy=codistill" in overrides and "distill.weight=0" not in overrides
    for group in range(len(groups)):
        taught = [line["distill_loss"] for line in metrics(bench, f"{name}-cuda", group)]
        check(any(taught) == teaches, f"{name}, group {group}: the teacher's loss is {taught}")
    return result


def on_a_gpu(setups, precision, bounds):
    def case(bench):
        for name in setups:
            result = trained_near_ref(bench, name, *setups[name], bounds, precision)
            said = "group 0: gradients are averaged inside its nodes first"
            check((said in result.err) == (name == "hierarchical"), f"{name}: how it averages", result)
    return case


def teachers_on_a_gpu(bench):
    """Teachers in other types than the student's predict by kernels of that type, near what they predict on `ref`."""
    losses = {}
    for precision, kernel in (("bf16", "product_kernelIt"), ("int8", "product_kernelIa")):  # with its first parameter, by the names of the C++ ABI
        trained_near_ref(bench, precision, 2, [*GPU_TEACHERS, f"distill.teacher_precision={precision}"], TEACHER_BOUNDS,
                         environment={"COD_CUDA_KERNELS": bench.path("kernels.txt")})
        kernels = bench.read("kernels.txt").decode()
        check(kernel in kernels, f"a teacher in {precision} launched no such kernel: {kernels}")
        losses[precision] = [line["distill_loss"] for line in metrics(bench, f"{precision}-cuda", 0)]
    check(losses["bf16"] != losses["int8"], f"both teachers are one: {losses}")


# In f32 sums are rounded in another order, 1e-7 of each; the critic's gradients and the loss toward a teacher are small differences of larger terms.
F32_BOUNDS = {**dict.fromkeys(SET_WEIGHTS, 2e-5), **dict.fromkeys(SET_STATES, 5e-4), **{f"loss.{loss}": 5e-6 for loss in LOSSES}, "distill_loss": 2e-4}
# In bf16 activations have 8 bits, and Adam's first steps go by the signs of gradients. The differences named above are not compared.
BF16_BOUNDS = {**dict.fromkeys(SET_WEIGHTS, 0.15), **{f"loss.{loss}": 3e-2 for loss in LOSSES}}
# A teacher's predictions have 8 bits there, and are rounded in other places than on `ref`: the loss toward them moves by some 2^-8.
TEACHER_BOUNDS = {**dict.fromkeys(SET_WEIGHTS, 2e-4), **{f"loss.{loss}": 1e-4 for loss in LOSSES}, "distill_loss": 2e-2}


def crossings(bench, output, ranks, *overrides, steps=60):
    """How often rank 0 met its device in each step but the first and the last ones."""
    environment = {"TOY_CROSSINGS": "1", "COD_LATE_DELAY_US": "100", "COD_LATE_ABORT": "1"}
    fixed = ["train.backend=late", f"train.steps={steps}", "exchange.period=8", "eval.every=0", "checkpoint.every=100000000"]
    result = job(bench, output, ranks, *fixed, *overrides, environment=environment)
    check(result.code == 0, "training failed", result)
    told = [int(count) for count in re.findall(r"^crossings \d+ (\d+)$", result.err, re.M)]
    check(len(told) == steps, "no counts", result)
    return [after - before for before, after in zip(told[2:], told[3:-1])]


def waits_where_bytes_leave(bench):
    """A step that publishes, adopts a teacher, also one on 8-bit integers, or merges meets the device once, as any other does: where
    losses are read. One of a pipeline, where a message leaves."""
    for merge in ("delay_corrected", "average"):
        for steps in longer_and_longer(60):
            output = f"{merge}-{steps}"
            each = crossings(bench, output, 2, "train.strategy=codistill", *TWO, "train.deterministic=false", f"exchange.merge={merge}", steps=steps)
            check(max(each) <= 1, f"merge={merge}: met the device so often in each step: {each}")
            results = results_of(bench, output)
            if all(r["publications"] > 5 and r["merges"] > 0 and r["teacher_switches"] > 0 for r in results):
                break
        else:
            check(False, f"{results}")
    for steps in longer_and_longer(180):
        output = f"int8-{steps}"
        each = crossings(bench, output, 2, "train.strategy=codistill", *TWO, "train.deterministic=false", "exchange.merge=none",
                         "model.stages=[16, 16]", "distill.teacher_precision=int8", steps=steps)
        check(max(each) <= 1, f"a teacher on integers: met the device so often in each step: {each}")
        results = results_of(bench, output)
        if all(r["publications"] > 5 and r["teacher_switches"] > 3 for r in results):
            break
    else:
        check(False, f"{results}")
    each = crossings(bench, "pipeline", 3, *PIPELINE, "train.clip_norm=0")
    # Now and then once more: the last gradients of a step come into memory that is still being copied from.
    check(0 < sorted(each)[len(each) // 2] <= 4, f"met the device so often in each step of 4 mini-batches: {each}")


def refusals(bench):
    for strategy, ranks in (("central_storage", 1), ("parameter_server", 2), ("async_parameter_server", 2), ("model_parallel", 2)):
        result = job(bench, strategy, ranks, f"train.strategy={strategy}", f"cluster.ranks_per_group={ranks}", "train.deterministic=false")
        check(result.code != 0 and f"strategy '{strategy}' trains one network, but recipe 'toy' has 2" in result.err, strategy, result)
    for recipe, other in (("toy", "supervised"), ("supervised", "toy")):
        trained(bench, recipe, 1, f"train.recipe={recipe}", "train.steps=4")
        result = job(bench, recipe, 1, f"train.recipe={other}")
        check(result.code == 2 and f"it was written with recipe '{recipe}', not '{other}'" in result.err, "another recipe", result)
    # Each rank has running statistics of its own, through which the critic judges.
    ranks, overrides = SETUPS["allreduce"]
    trained(bench, "ranks", 1, *overrides[:1], "train.steps=4")
    result = job(bench, "ranks", ranks, *overrides)
    check(result.code == 2 and "group 0 had 1 ranks, and strategy 'allreduce' cannot go on with 2" in result.err, "more ranks", result)
    result = job(bench, "never", 1, "toy.critic_every=0")
    check(result.code == 2 and "toy.critic_every" in result.err, "an option of the recipe", result)


CASES = {
    "learns": learns,
    "leaves-the-model-alone": leaves_the_model_alone,
    "late": on_a_device,
    "cuda": on_a_gpu(GPU_SETUPS, "f32", F32_BOUNDS),
    "cuda-bf16": on_a_gpu({name: GPU_SETUPS[name] for name in ("single", "codistill")}, "bf16", BF16_BOUNDS),
    "cuda-exchanges": on_a_gpu(GPU_EXCHANGES, "f32", F32_BOUNDS),
    "cuda-teachers": teachers_on_a_gpu,
    "late-waits": waits_where_bytes_leave,
    "refusals": refusals,
    **{f"killed-{setup}": goes_on(setup) for setup in SETUPS},
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
