"""The step benchmark and the scripts that start it (tools/bench/gpu_*.py), on the emulated GPU: that they run, and what they refuse.

usage: test_bench.py BENCH CASE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "tools/bench"
sys.path.insert(0, str(SCRIPTS))
import gpu_goals  # noqa: E402
BENCH = sys.argv[1]
MLP = ["mlp", "height=1 width=1 channels=16 classes=4 hidden=16", "4", "1", "1", "16"]
SRRESNET = ["srresnet", "blocks=1 channels=16", "1", "4", "4", "3"]


def bench(*arguments, lines=""):
    return subprocess.run([BENCH, *arguments], input=lines, capture_output=True, text=True)


def script(name, *arguments, program=BENCH, **variables):
    return subprocess.run([sys.executable, "-B", str(SCRIPTS / name), "--bench", program, *arguments], capture_output=True, text=True,
                          env={**os.environ, **variables})


def serves():
    done = bench("serve", *MLP, lines="step\nops\nstep\n")
    assert done.returncode == 0, done.stderr
    ready, first, ops, second = map(json.loads, done.stdout.splitlines())
    assert ready["batch"] == 4 and ready["first_step_s"] > 0 and ready["taken_mib"] >= ready["memory_mib"] > 0 and "emulated" in ready["device"]
    assert first["ms"] >= first["host_ms"] > 0 and second["ms"] > 0 and first["steps"] >= 1
    kinds = [op["kind"] for op in ops["ops"]]
    assert kinds.count("linear") == 2 and kinds.count("linear_backward_weights") == 2 and kinds[-2:] == ["pack weights", "sgd"], kinds
    assert all(op["ms"] > 0 and op["gbyte"] > 0 for op in ops["ops"])
    # A linear layer's product: 2 operations for each of N times I times O, and W, b, x and y are read or written once.
    layer = next(op for op in ops["ops"] if op["kind"] == "linear")
    assert abs(layer["gflop"] - 2e-9 * 4 * 16 * 16) < 1e-6, layer
    done = bench("serve", *SRRESNET, lines="ops\n")
    assert done.returncode == 0, done.stderr
    ops = json.loads(done.stdout.splitlines()[1])["ops"]
    gflop = {kind: sum(op["gflop"] for op in ops if op["kind"] == kind) for kind in ("conv2d", "conv2d_backward_weights")}
    assert ops[-1]["kind"] == "adam" and json.loads(done.stdout.splitlines()[0])["optimiser"] == "adam", ops[-1]
    assert any(op["name"].endswith("and 2 more") for op in ops), "no weight gradients are one plan"
    assert gflop["conv2d"] > 0 and abs(gflop["conv2d"] - gflop["conv2d_backward_weights"]) < 1e-8, gflop
    # bf16 of 4x4 pixels with 16 channels: x, what it is normalised to, and y, beside f32 weights and parameters.
    layer = next(op for op in ops if op["kind"] == "conv2d" and op["name"] == "norm + body.0.f.3 + norm")
    assert abs(layer["gbyte"] - 1e-9 * (3 * 2 * 16 * 16 + 4 * 9 * 16 * 16 + 4 * 10 * 16 + 4)) < 2e-9, layer


def steps():
    with tempfile.TemporaryDirectory() as folder:
        report, summary = pathlib.Path(folder) / "steps.json", pathlib.Path(folder) / "summary.txt"
        done = script("gpu_steps.py", "--cases", "tiny", "--forms", "", "--rounds", "2", "--codes", "30000", "--json", str(report), "--summary", str(summary),
                      "--commit", "abc")
        assert done.returncode == 0, done.stderr
        assert json.loads(report.read_text())["commit"] == "abc"
        (result,) = json.loads(report.read_text())["results"]
        assert len(result["ms"]["ours"]) == 2 and result["teacher"]["taught_ms"] > 0 and result["teacher"]["step_ms"] > 0, result["teacher"]
        lines = done.stdout.splitlines()
        head = next(i for i, line in enumerate(lines) if line.startswith("step, ms"))
        row = lines[head + 1].split()
        codes = lines[next(i for i, line in enumerate(lines) if "exchange, us" in line) + 1].split()
        assert codes[:2] == ["0.03", "M"] and len(codes) == 9 and all(float(us) > 0 for us in codes[2:8]), codes
        assert row[0] == "tiny" and float(row[1]) > 0 and row[2] == "-" and row[-1] == "%", row
        assert result["first_again_s"] > 0 and "1 not measured" in lines[-1], lines[-1]  # memory, of PyTorch's that did not run
        assert summary.read_text().splitlines() == lines[head:], "the table and the goals do not come last"


BENCH_STAND_IN = """#!/bin/bash
echo "$1 $2 $4 ${COD_CUDA_TUNE_S-none}" >>"$STAND_LOG"
optimiser=sgd
[ "$2" != srresnet ] || optimiser=adam
[ "$1 $2 $4" != "$STAND_HANGS" ] || exec sleep 600
[ -z "$STAND_REFUSES" ] || echo "warning: cuda: cudnn-3 of conv2d is not used: its results are not those of our kernels" >&2
case $1 in
    teacher) echo '{"step_ms": 1.0, "taught_ms": 1.1}' ;;
    codes) echo '{"weights": 1000000, "key_us": 1, "read_key_us": 1, "delta_us": 1, "read_delta_us": 1, "copy_key_us": 1, "copy_delta_us": 1, "copy_f32_us": 1}' ;;
    serve)
        echo "{\\"optimiser\\": \\"$optimiser\\", \\"first_step_s\\": 0.1, \\"memory_mib\\": 10, \\"device\\": \\"a stand-in\\"}"
        while read -r word; do
            [ "$word" = ops ] && echo '{"ops": [{"kind": "conv2d", "name": "", "ms": 0.98, "gflop": 1, "gbyte": 1}]}' || echo '{"ms": 1.0, "host_ms": 0.1}'
        done ;;
esac
"""
PYTORCH_STAND_IN = """
import json, os, sys, time
if sys.argv[1] == "limits":
    print(json.dumps({"tflops": 700, "gbytes": 3000, "card": "a card", "version": "2", "cudnn": 9}))
    sys.exit()
if os.environ["STAND_SLEEPS"] == " ".join(sys.argv[4:7:2]):
    time.sleep(600)
optimiser = os.environ.get("STAND_OPTIMISER") or ("adam" if sys.argv[4] == "srresnet" else "sgd")
forms = {name: {"first_s": 1, "peak_mib": 20, "optimiser": optimiser} for name in sys.argv[3].split(",")}
print(json.dumps({"forms": forms}), flush=True)
for line in sys.stdin:
    print(json.dumps({"ms": 4.0}), flush=True)
"""


def budget():
    """gpu_steps.py with made-up programs: what hangs does not take the others' time, and what was not measured is told."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, pytorch, log = folder / "bench", folder / "pytorch.py", folder / "log"
        program.write_text(BENCH_STAND_IN)
        program.chmod(0o755)
        pytorch.write_text(PYTORCH_STAND_IN)
        (folder / "torch.py").touch()

        def run(seconds, cases, hangs="", sleeps="", optimiser="", refuses="", more=()):
            log.write_text("")
            begin = time.monotonic()
            done = script("gpu_steps.py", "--pytorch", str(pytorch), "--cases", cases, "--rounds", "2", "--seconds", str(seconds), *more, program=str(program),
                          PYTHONPATH=str(folder), STAND_LOG=str(log), STAND_HANGS=hangs, STAND_SLEEPS=sleeps, STAND_OPTIMISER=optimiser, STAND_REFUSES=refuses)
            return done, done.stdout.splitlines(), time.monotonic() - begin

        done, lines, took = run(30, "srresnet-16,srresnet-256,mlp4-100,resnet50-64", "serve srresnet 256", "resnet50 64")
        told = [line for line in lines if line.startswith("not measured: ")]
        assert done.returncode == 3 and took < 500, (took, done)
        assert len(told) == 2 and "resnet50-64: PyTorch's side: " in told[0] and told[1] == "not measured: srresnet-256: cut off", told
        rows = lines[next(i for i, line in enumerate(lines) if line.startswith("step, ms")):]
        assert rows[1].split()[:6] == ["srresnet-16", "1.0000", "4.0000", "4.0000", "4.0000", "4.00"] and rows[1].endswith("+10 %"), rows
        assert rows[2].split() == ["srresnet-256", "not", "measured"] and rows[3].split()[5] == "4.00" and rows[4].split()[:5] == ["resnet50-64", "1.0000", "-", "-", "-"]
        assert sum(line.startswith("srresnet-256 ") and line.endswith("not measured") for line in rows) == 6, rows
        assert rows[-1] == "goals: 11 reached, 0 MISSED, 7 not measured", rows[-1]
        # The first process of a case may tune for a part of its time, the second one, of which the first step is timed, not at all.
        (first, second, teacher) = [line.split()[3] for line in log.read_text().splitlines() if " srresnet 16 " in line]
        assert 1 <= int(first) <= 12 and second == "0" and 1 <= int(teacher) <= 12, (first, second, teacher)

        done, lines, took = run(1, "srresnet-16,mlp4-100")
        assert done.returncode == 3 and took < 500 and "not measured: mlp4-100: no time was left" in lines, (took, done)
        assert lines[-1] == "goals: 0 reached, 0 MISSED, 9 not measured", lines[-1]

        done, lines, _ = run(60, "mlp4-100", optimiser="adam")
        assert done.returncode == 1 and "mlp4-100: eager trains with adam, ours with sgd" in done.stderr, done

        # A library may be right that the tuner refuses. The time is what the file says that it waits for.
        begin = folder / "begin"
        begin.write_text("60\n")
        done, lines, _ = run(0, "mlp4-100", refuses="yes", more=("--begin", str(begin)))
        assert done.returncode == 1 and "mlp4-100: a library's results are refused: warning: cuda: cudnn-3 of conv2d" in done.stderr, done
        assert "mlp4-100: ours 1.0000 ms; PyTorch's eager form 4.0000 ms, 4.00 times as long" in lines, lines
        done, lines, _ = run(60, "srresnet-64", more=("--forms", ""))
        assert done.returncode == 0 and "srresnet-64: ours 1.0000 ms; PyTorch on an H100, in an earlier trial, 6.99 ms, 6.99 times as long" in lines, done


def goals():
    """Figures on both sides of their goals, and figures that were not measured."""
    good = {"case": "srresnet-16", "ms": {"ours": [1.0, 1.0, 9.0], "eager": [20.0], "graph": [3.5]}, "ops": [{"ms": 0.5}, {"ms": 0.48}],
            "forms": {"eager": {"peak_mib": 900}, "graph": {"peak_mib": 100}, "compile": {"error": "no"}},
            "ours": {"memory_mib": 60}, "first_again_s": 4.99, "teacher": {"step_ms": 1.0, "taught_ms": 1.11}}
    bad = {**good, "ms": {**good["ms"], "graph": [3.4]}, "ops": [{"ms": 0.96}], "ours": {"memory_mib": 61}, "first_again_s": 5.01,
           "teacher": {"step_ms": 1.0, "taught_ms": 1.13}}
    alone = {**good, "ms": {"ours": [1.0]}, "forms": {}}
    busy = {**good, "ops": [{"ms": 1.5}]}  # ops that take longer alone than in the step
    names = ["times as fast as PyTorch's fastest", "what a teacher adds", "idle, of a step", "first step, s, from the start",
             "memory, of PyTorch's"]
    for result, verdicts in ((good, ["reached"] * 5), (bad, ["MISSED"] * 5), (busy, ["reached"] * 5),
                             (alone, ["not measured", "reached", "reached", "reached", "not measured"])):
        rows = gpu_goals.rows(result)
        assert [row.what for row in rows] == names and [row.verdict() for row in rows] == verdicts, rows
    assert gpu_goals.table([good, bad, alone])[-1] == "goals: 8 reached, 5 MISSED, 2 not measured"
    assert gpu_goals.rows(busy)[2].figure == 0
    assert {row.goal for case in gpu_goals.FASTER for row in gpu_goals.rows({**good, "case": case}) if row.least} == {3.5, 1.2, 1.0}
    assert [row.what for row in gpu_goals.rows({**good, "case": "mlp4-100"})] == [names[0], *names[2:]], "a teacher has no goal there"


def losses():
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "losses.json"
        common = ["--cases", "tiny", "--steps", "3", "--device", "none", "--json", str(report)]
        done = script("gpu_losses.py", *common)
        assert done.returncode == 0, done.stdout + done.stderr
        answer = json.loads(report.read_text())["tiny"]
        assert set(answer["losses"]) == {"ref f32", "cuda f32", "cuda bf16"} and all(len(v) == 3 for v in answer["losses"].values())
        assert answer["losses"]["cuda bf16"] != answer["losses"]["cuda f32"], "bf16 was not used"
        assert 0 < answer["distances"]["cuda f32"]["mean"] < 1e-5, answer["distances"]
        done = script("gpu_losses.py", *common, "--f32", "1e-12")
        assert done.returncode == 1 and "tiny: cuda f32 is" in done.stderr and "more than 1e-12" in done.stderr, done.stderr
        # What is known is not computed again: with other losses of ref, ours are wrong.
        known = pathlib.Path(folder) / "known.json"
        for factor, code in ((1, 0), (1.1, 1)):
            known.write_text(json.dumps({"tiny": {"losses": {"ref f32": [factor * loss for loss in answer["losses"]["ref f32"]]}}}))
            done = script("gpu_losses.py", *common, "--known", str(known))
            assert done.returncode == code, done
        done = script("gpu_losses.py", *common, "--known", str(known), "--steps", "4")  # not known so far
        assert done.returncode == 0, done
        done = script("gpu_losses.py", *common, "--seconds", "0")
        assert done.returncode == 3 and "not measured: losses of tiny on cuda in bf16" in done.stdout, done


def exports():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        done = bench("losses", *SRRESNET, "ref", "f32", "1", name)
        assert done.returncode == 0, done.stderr
        entries = json.loads((folder / "weights.json").read_text())
        size = 0
        for entry in entries:
            assert entry["offset"] == size, entry
            count = 1
            for dimension in entry["shape"]:
                count *= dimension
            size += count
        assert (folder / "weights.f32").stat().st_size == 4 * size
        assert {"head.0.weight", "body.0.f.1.running_var", "tail.6.bias"} <= {entry["name"] for entry in entries}
        assert (folder / "input3.f32").stat().st_size == 4 * 4 * 4 * 3 and (folder / "target3.f32").stat().st_size == 4 * 16 * 16 * 3
        assert (folder / "input0.f32").read_bytes() != (folder / "input1.f32").read_bytes()


def refusals():
    cases = [
        (["fly"], 2, "usage:"),
        (["serve", *MLP, "more"], 2, "usage:"),
        (["serve", "mlp", MLP[1], "4", "1", "x", "16"], 1, "'x' is not a number above 0"),
        (["serve", "nonsense", *MLP[1:]], 1, "no model 'nonsense'"),
        (["losses", *MLP, "metal", "f32", "1"], 1, "BACKEND is cuda or ref, not 'metal'"),
        (["losses", *MLP, "ref", "f16", "1"], 1, "TYPE is f32 or bf16, not 'f16'"),
        (["losses", *MLP, "ref", "f32", "0"], 1, "'0' is not a number above 0"),
        (["losses", *MLP, "ref", "f32", "1", "/nowhere"], 1, "is '/nowhere' a folder?"),
    ]
    for arguments, code, message in cases:
        done = bench(*arguments)
        assert done.returncode == code and message in done.stderr, f"{arguments}: {done}"
    done = bench("serve", *MLP, lines="jump\n")
    assert done.returncode == 1 and "'jump' is neither step nor ops" in done.stderr, done.stderr
    for name, arguments, message in (("gpu_steps.py", ["--cases", "x"], "there is no x"), ("gpu_losses.py", ["--runs", "x"], "a list such as")):
        done = script(name, *arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr


if __name__ == "__main__":
    {"serves": serves, "steps": steps, "budget": budget, "goals": goals, "losses": losses, "exports": exports, "refusals": refusals}[sys.argv[2]]()
