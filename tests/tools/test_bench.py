#!/usr/bin/env python3
"""`codistill bench` on a tiny model: tables, JSON, files and messages. No time is asserted.

usage: test_bench.py CODISTILL
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
TINY = ["--batch", "2", "--patch", "8", "--repeats", "1", "--no-autotune", "blocks=1", "channels=8"]


def bench(*arguments, code=0, stdin=""):
    done = subprocess.run([PROGRAM, "bench", *arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode} instead of {code}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def table():
    text = bench("step", *TINY, "--ops")
    for part in ("peak, measured now: f32", "conv2d_backward_weights", "pack weights", "optimiser (adam)", "GFLOP/s", "GB/s", "of peak",
                 "peak RSS", "first finished step", "convolutions alone"):
        assert part in text, f"no '{part}' in\n{text}"


def numbers():
    result = json.loads(bench("step", *TINY, "--json"))
    assert result["model"] == "srresnet" and result["parameters"] > 1000 and 0 < result["loss"] < 10
    for key in ("step_ms", "first_step_s", "peak_rss_mib", "arena_mib", "of_peak", "convolutions_ms"):
        assert result[key] > 0, key
    assert result["peak"]["f32_gflops"] > 0.01 and result["peak"]["memory_gbytes"] > 0.01
    kinds = {row["kind"]: row for row in result["kinds"]}
    assert len(kinds) == len(result["kinds"]) and len(result["ops"]) == sum(row["calls"] for row in kinds.values())
    for kind, row in kinds.items():
        parts = [op["ms"] for op in result["ops"] if op["kind"] == kind]
        assert abs(sum(parts) - row["ms"]) < 1e-6 + 1e-6 * row["ms"], kind
    assert kinds["conv2d"]["gflops"] > 0 and kinds["conv2d"]["of_peak"] > 0
    ref = json.loads(bench("step", *TINY, "--json", "--backend", "ref", "--precision", "f32"))
    cpu = json.loads(bench("step", *TINY, "--json", "--precision", "f32"))
    assert ref["peak"]["f32_gflops"] is None and ref["convolutions_ms"] is None
    assert abs(ref["loss"] - cpu["loss"]) < 1e-5, "the backends start from unlike weights or batches"


def tunes(folder):
    """Each shape once, the choice by rule unless another one is faster, and what the last time said."""
    os.environ["XDG_CACHE_HOME"] = folder
    tiny = ["tune", "--batch", "2", "--patch", "8", "blocks=2", "channels=16"]
    shapes = json.loads(bench(*tiny, "--json"))["shapes"]
    several = [row for row in shapes if len(row["us"]) > 1]
    assert several and sum(row["uses"] for row in shapes) > len(shapes), shapes
    for row in several:
        assert row["before"] is None and min(row["us"].values()) > 0, row
        assert row["chosen"] == row["rule"] or row["us"][row["chosen"]] < 0.95 * row["us"][row["rule"]], row
    with open(f"{folder}/codistill/convolutions.txt") as file:
        assert len(file.readlines()) == len(several)
    for row, again in zip(shapes, json.loads(bench(*tiny, "--json"))["shapes"]):
        assert len(row["us"]) < 2 or again["before"] == row["chosen"], again
    text = bench(*tiny)
    assert f"{len(shapes)} shapes of convolutions, {len(several)} with several implementations" in text, text
    for arguments, message in ((["--precision", "f16"], "--precision: 'f16' is none of auto, f32, bf16"), (["--batch", "0"], "--batch")):
        assert message in bench("tune", *arguments, code=2)
    del os.environ["XDG_CACHE_HOME"]


def classifiers():
    """Sizes that are not given are those of pictures of --patch; those that are, stay."""
    for model, inputs in (("mlp", 8 * 8 * 3), ("mlp height=5 width=4 channels=1", 20), ("logistic", 8 * 8 * 3), ("mlp hidden=256,256", 8 * 8 * 3),
                          ("mlp hidden=[256,256]", 8 * 8 * 3)):
        name, *options = model.split()
        step = ["step", "--model", name, "--batch", "2", "--patch", "8", "--repeats", "1", "--no-autotune", "--json", *options]
        result = json.loads(bench(*step))
        tensors = [inputs * 10, 10] if name == "logistic" else [inputs * 256, 256, 256 * 256, 256, 256 * 10, 10]
        assert result["parameters"] == sum((count + 15) // 16 * 16 for count in tensors) and 0 < result["loss"] < 100 and result["convolutions_ms"] is None, result


def serves(folder):
    answers = [json.loads(line) for line in bench("step", *TINY, "--serve", "--export", folder, stdin="go\ngo\n").splitlines()]
    assert len(answers) == 3 and answers[2]["loss"] < answers[0]["loss"], answers
    assert sorted(os.listdir(folder)) == ["batch.safetensors", "model.safetensors"]


def adversarial(folder):
    """A recipe of two networks: all of its programs, and the weights of both."""
    small = ["step", *TINY, "--recipe", "srgan", "gan.features=4", "gan.hidden=8"]
    result = json.loads(bench(*small, "--json"))
    programs = [op["program"] for op in result["ops"]]
    assert result["recipe"] == "srgan" and programs == sorted(programs, key=["generator", "discriminator"].index), programs
    for program in ("generator", "discriminator"):
        kinds = [op["kind"] for op in result["ops"] if op["program"] == program]
        assert kinds[0] == "pack weights" and kinds[-1] == "optimiser (adam)" and "conv2d_backward_data" in kinds, kinds
    assert "discriminator: linear_backward_weights classifier.0" in bench(*small, "--ops")
    # With gan.warm_up the first step is the discriminator's alone; the generator's pictures are made without training it.
    programs = {op["program"] for op in json.loads(bench(*small, "gan.warm_up=1", "--json"))["ops"]}
    assert programs == {"forward", "discriminator"}, programs
    answers = [json.loads(line) for line in bench(*small, "--serve", "--export", folder, stdin="go\ngo\n").splitlines()]
    assert sorted(answers[0]["losses"]) == ["adversarial", "content", "d_fake", "d_real"], answers
    assert answers[2]["loss"] == answers[2]["losses"]["content"] < answers[0]["losses"]["content"], answers
    assert answers[2]["losses"]["d_real"] < answers[0]["losses"]["d_real"], answers
    assert sorted(os.listdir(folder)) == ["batch.safetensors", "discriminator.safetensors", "model.safetensors"]
    assert "there is no recipe 'gam'" in bench("step", "--recipe", "gam", code=2)
    assert "unknown key 'colour' in 'gan'" in bench(*small, "gan.colour=blue", code=2)
    assert "has no option 'gan.hidden'" in bench("step", "gan.hidden=8", code=2)


def teaches():
    text = bench("teacher", *TINY, "--batch-fraction", "0.5")
    assert "a teacher predicts 1 picture\n" in text and "step without a teacher" in text and "\nf32 " in text, text
    assert "\nint8 " in bench("teacher", *TINY, "channels=16", "--backend", "ref"), "no row of int8"
    assert "--batch-fraction: '1.5' is not a number above 0" in bench("teacher", "--batch-fraction", "1.5", code=2)


def codes(folder):
    model = f"{folder}/model.safetensors"
    rows = json.loads(bench("codec", model, model, model, "--key-every", "2", "--json"))
    assert [row["key"] for row in rows if row["codec"] == "delta+zstd"][:3] == [True, False, True]
    for row in rows:
        assert row["ratio"] > 0.9 and row["encode_gb_s"] > 0 and row["decode_gb_s"] > 0, row
        assert row["db"] is None if row["codec"].startswith("f32") else row["db"] > 40, row
    whole = {row["codec"]: row["ratio"] for row in rows if row["checkpoint"] is None}
    assert whole["delta+zstd"] > whole["int8+zstd"] > whole["bf16"] > whole["f32"], whole
    assert "all of them" in bench("codec", model)


def upscales(folder):
    model, output = f"{folder}/model.safetensors", f"{folder}/high.f32"
    assert "9x7 -> 36x28" in bench("upscale", model, "--size", "9x7", "--repeats", "1", "--output", output)
    assert os.path.getsize(output) == 36 * 28 * 3 * 4
    os.rename(output, f"{folder}/input.f32")
    again = [model, "--input", f"{folder}/input.f32", "--output", output]
    assert len(bench("upscale", *again, "--size", "36x28", "--serve", stdin="go\n").splitlines()) == 2
    assert "but 35x28 pixels take 11760" in bench("upscale", *again, "--size", "35x28", code=1)
    assert "is no WIDTHxHEIGHT" in bench("upscale", model, "--size", "9", code=2)
    assert "--repeats: '0' is not a whole number from 1 to" in bench("upscale", model, "--repeats", "0", code=2)
    assert "--batch: 'x' is not a whole number" in bench("step", "--batch", "x", code=2)
    assert "--repeats: '5x' is not a whole number" in bench("step", "--repeats", "5x", code=2)
    assert "--precision: 'f23' is none of" in bench("step", "--precision", "f23", code=2)
    assert "BUCKETS: '6x' is not a whole number" in bench("allreduce", "6.2", "6x", code=2)
    assert "one MODEL is wanted" in bench("upscale", code=2)
    assert "a CHECKPOINT is wanted" in bench("codec", code=2)
    assert "--db: '60' is not a number from 6 to 48" in bench("codec", "x", "--db", "60", code=2)
    assert "there is no model 'x'" in bench("step", "--model", "x", code=2)
    assert "has no option 'colour'" in bench("step", "colour=blue", code=2)


def judges():
    assert "--niqe-model FILE is wanted" in bench("niqe", "a.png", code=2)
    assert "a PICTURE is wanted" in bench("niqe", "--niqe-model", "model.npz", code=2)
    assert "--repeats: '0' is not a whole number" in bench("niqe", "a.png", "--niqe-model", "model.npz", "--repeats", "0", code=2)
    assert "NIQE's model" in bench("niqe", "a.png", "--niqe-model", "/nowhere/model.npz", code=1)
    data = os.environ.get("COD_DATA", "")
    model, picture = f"{data}/niqe/niqe_pris_params.npz", f"{data}/set5/img_003_SRF_4_HR.png"
    if not os.path.exists(model):
        return
    assert "256x256" in bench("niqe", picture, "--niqe-model", model, "--repeats", "1")
    answers = [json.loads(line) for line in bench("niqe", picture, picture, "--niqe-model", model, "--serve", stdin="go\n").splitlines()]
    assert len(answers) == 2 and all(abs(value - 5.142268) < 1e-5 for answer in answers for value in answer["niqe"]), answers
    assert "nowhere.png" in bench("niqe", "nowhere.png", "--niqe-model", model, code=1)


def loads(folder):
    text = bench("loader", "patch=8", "batch=2", "synthetic_count=4")
    assert "3 samples to train on" in text and "a second of a core; memcpy" in text, text
    text = bench("loader", "patch=8", "batch=2", "synthetic_count=4", "transfer=uint8")
    assert "8x8x3 and 32x32x3 as bytes" in text and "a second of a core; memcpy" in text, text
    degraded = ["loader", "patch=8", "batch=2", "synthetic_count=4", "degradation=real_esrgan"]
    assert "a second of a core; memcpy" in bench(*degraded, "degradation.jpeg_range=[30, 95]", "scales=[1, 0.75]")
    assert "degradation.jpeg_range: 95, the least, is above 30, the most" in bench(*degraded, "degradation.jpeg_range=[95,30]", code=2)
    assert "jpeg_range: '0' is not" in bench(*degraded, "degradation.jpeg_range=[0, 30]", code=2)
    assert "degradation has no option 'colour'" in bench("loader", "degradation.colour=blue", code=2)
    assert "data has no option 'colour'" in bench("loader", "colour=blue", code=2)
    assert "no pictures in" in bench("loader", folder, code=2)


def exchanges(folder):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", PROGRAM, "bench", "exchange", "--weights", "20000", "--period", "10",
               "--publications", "8", "--step-ms", "5"]
    for more, codec in ((["codec=delta"], "delta"), (["codec=int8", "entropy=none"], "int8")):
        done = subprocess.run([*command, *more, "--json"], capture_output=True, text=True, env={**os.environ, **root})
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stdout)
        assert result["takeovers"] >= 1 and result["rejected"] == 0, result
        assert result["step_ms"] > 0 and result["publication_to_use_ms"] > 0, result
        assert abs(result["ratio"] - 3.95) < 0.05 if codec == "int8" else result["ratio"] > 4.5, result
        assert 8 <= result["publications"] <= 2 * 8, result
        f32_bytes = 4 * 20000 * result["publications"] / (8 * 10)
        assert abs(result["published_bytes_per_step"] * result["ratio"] / f32_bytes - 1) < 0.1, result
    text = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **root}).stdout
    assert "publication to use" in text and "progress thread" in text, text
    assert "a job of size 1 does not divide into 2 groups" in bench("exchange", code=2)
    assert "has no option 'colour'" in bench("exchange", "colour=blue", code=2)
    assert "--step-ms: '0' is not a number above 0" in bench("exchange", "--step-ms", "0", code=2)
    assert "there are rates such as" in bench("exchange", "--net", "--rates", "fast", code=2)
    alone = f"{folder}/codistill"
    shutil.copy(PROGRAM, alone)
    done = subprocess.run([alone, "bench", "exchange", "--net"], capture_output=True, text=True)
    assert done.returncode == 1 and "which is in no folder above" in done.stderr, done.stderr


def scales(folder):
    given = ["--costs", "0.6,3,1.5,1.8,4", "--ratios", "4.3,12.9"]
    small = ["scale", "--layouts", "4x4,8x1", "--weights", "1e5,1e6", "--step-ms", "5,10", "--links", "0.01,inf", "--publications", "6"]
    text = bench(*small, *given, "--json")
    assert text == bench(*small, *given, "--json"), "the same settings give other figures"
    rows = json.loads(text)["rows"]
    assert len(rows) == 2 * 2 * 2 * 2 and {row["peers_option"] for row in rows} == {"all", "ring"}
    for row in rows:
        all_peers = row["peers_option"] == "all"
        assert row["peers"] == (row["groups"] - 1 if all_peers else 1) and row["publications"] == 6, row
        assert row["memory_bytes"] * row["ranks"] > 4 * row["weights"] * (5 + 2 * row["peers"]) and row["checkpoint_bytes"] > 4 * row["weights"], row
        assert row["link_gbit_s"] in (0.01, None) and row["with_exchange_s"] > row["step_s"] * 0.9, row
        assert row["link_gbit_s"] is not None or row["used"] == 1, row
    slow = [row for row in rows if row["link_gbit_s"] == 0.01 and row["groups"] == 8 and row["weights"] == 1e6]
    assert slow[0]["used"] < slow[1]["used"] and slow[0]["allreduce_step_s"] > slow[0]["with_exchange_s"], slow
    costs = json.loads(bench("scale", "--layouts", "2x1", "--weights", "1e5", "--publications", "3", "--json"))
    assert costs["costs_measured"] and all(costs["costs_ns"][key] > 0 for key in ("copy", "encode", "mirror", "decode", "merge")), costs
    assert 3 < costs["key_ratio"] < costs["ratio"] < 20, costs
    text = bench(*small, *given)
    assert "8x1" in text and "ns a weight, given" in text and len(text.splitlines()) == 5 + len(rows), text
    # 63 peers are too many for a period of 10 steps: several deltas in one pull let a group catch up.
    many = ["scale", "--layouts", "64x1", "--weights", "1e4", "--links", "inf", "--peers", "all", *given, "period=10", "--json"]
    one, several = (json.loads(bench(*many, "--deltas", deltas))["rows"][0] for deltas in ("1", "16"))
    assert several == json.loads(bench(*many))["rows"][0] and one["followed"] == 0 and one["lost"] > 0, one
    assert several["followed"] > 0 and several["taken"] > one["taken"] and several["staleness_median"] < one["staleness_median"], several
    assert 0 < one["strength"] < one["merged"] < 1, one
    # Steps as measured.
    with open(f"{folder}/pace.json", "w") as file:
        json.dump([[0.01] * 500, [0.02] * 500], file)
    pace = ["scale", "--layouts", "2x1", "--weights", "1e5", "--links", "inf", "--peers", "all", *given, "--pace", f"{folder}/pace.json"]
    row = json.loads(bench(*pace, "--publications", "10", "--json"))["rows"][0]
    assert 0.015 < row["with_exchange_s"] < 0.0152, row
    # Two ranks of 10 and 20 ms on one core: 20 ms a step, and 30 when the first has ended.
    row = json.loads(bench(*pace, "--publications", "10", "--json", "--cores", "1"))["rows"][0]
    assert 0.025 < row["with_exchange_s"] < 0.0252, row
    # Publications as measured.
    with open(f"{folder}/bytes.json", "w") as file:
        json.dump([[1000] * 10, [3000] * 10], file)
    sizes = ["--bytes", f"{folder}/bytes.json"]
    row = json.loads(bench(*pace, "--publications", "10", "--json", *sizes))["rows"][0]
    assert row["taken"] == 9 + 4 and abs(row["bytes_a_step"] * 1000 - (9 * 1000 + 4 * 3000)) < 1e-6, row  # the second is half as far at the end
    assert "10 bytes of group 0 are not those of 9 publications" in bench("scale", *given, "--layouts", "2x1", "--publications", "9", *sizes, code=2)
    assert "500 seconds of group 0 are not those of 1000 steps" in bench(*pace, code=2)
    assert "2 lists are not the seconds of 3 groups" in bench(*pace, "--layouts", "3x1", "--publications", "10", code=2)
    with open(f"{folder}/pace.json", "w") as file:
        json.dump([[0.01] * 500, [None] * 500], file)
    assert "step 0 of group 1 does not take a number" in bench(*pace, "--publications", "10", code=2)
    for arguments, message in ((["--layouts", "1x4"], "is not a list such as 16x1"), (["--layouts", "16"], "is not a list such as 16x1"),
                               (["--weights", "0"], "--weights: '0' is not a list"), (["--links", "fast"], "--links: 'fast'"),
                               (["--step-ms", "1,2"], "--step-ms: '1,2' is not one number"), (["--costs", "1,2"], "--costs: '1,2'"),
                               (["--ratios", "4"], "--ratios: '4'"), (["--drift", "2"], "--drift: '2' is not a number from 0 to 1"),
                               (["--publications", "2"], "2"), (["--peers", "some"], "peers"), (["codec=int8"], "the model is of exchange.codec=delta"),
                               (["deterministic=true"], "the model is of exchange.codec=delta"),
                               (["--deltas", "17"], "17"), (["--cores", "0"], "--cores: '0' is not a whole number from 1 to"), (["fragments=5"], "knows nothing of 5 fragments"), (["colour=blue"], "has no option 'colour'")):
        assert message in bench("scale", *given, *arguments, code=2), arguments

    # What is drawn of it, and what is made of runs: two groups in step take over all publications but the last.
    with open(f"{folder}/figures.json", "w") as file:
        file.write(bench("scale", "--layouts", "2x1,4x1", "--weights", "1e5", "--links", "1", "--publications", "6", *given, "--json"))
    scripts = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/bench")
    subprocess.run([sys.executable, "-B", f"{scripts}/scale_plot.py", f"{folder}/figures.json", f"{folder}/figures.svg"], check=True)
    with open(f"{folder}/figures.svg") as file:
        assert file.read().count("<polyline") == 2 + 2 + 2 + 2
    os.mkdir(f"{folder}/scale-2x1")
    for group in range(2):
        with open(f"{folder}/scale-2x1/metrics.{group}.jsonl", "w") as file:
            for step in range(5, 205, 5):
                peer = {"group": 1 - group, "version": step // 60, "staleness_steps": 30, "pulled": step // 60, "pulled_bytes": 250000 * (step // 60), "lost": 0}
                print(json.dumps({"step": step, "trained_s": 0.01 * step, "processor_s": 0.01 * step, "exchange_processor_s": 1e-4 * step,
                                  "published_bytes": 250000 * (step // 50), "peers": [peer]}), file=file)
    with open(f"{folder}/scale-2x1/summary.json", "w") as file:
        file.write("{}")
    done = subprocess.run([sys.executable, "-B", f"{scripts}/scale_measured.py", "--codistill", PROGRAM, "--layouts", "2x1", "--output", folder],
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].split()[:5] == ["2x1", "0.0", "75.0", "75.0", "+0.0"], done.stdout + done.stderr


with tempfile.TemporaryDirectory(prefix="cod-bench-") as scratch:
    table()
    teaches()
    numbers()
    classifiers()
    serves(scratch)
    tunes(f"{scratch}/cache")
    adversarial(f"{scratch}/gan")
    codes(scratch)
    upscales(scratch)
    judges()
    os.mkdir(f"{scratch}/empty")
    loads(f"{scratch}/empty")
    exchanges(scratch)
    scales(scratch)
