#!/usr/bin/env python3
"""What the comparisons of tools/bench decide without the programs that they compare with: test_comparisons.py"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/bench"))
import choices
import common
import step_vs_pytorch
import upscale_vs_onnxruntime


def machine(text):
    with tempfile.NamedTemporaryFile("w") as file, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        file.write(text)
        file.flush()
        return common.describe_machine(file.name)


def variants(wanted, text):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        return step_vs_pytorch.variants_of(wanted, machine(text)), errors.getvalue()


# In place of codistill and of PyTorch: milliseconds of each network, with one thread; PyTorch's compiled step takes three quarters.
STAND_IN = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
def serve(ms, loss, **more):
    while True:
        print(json.dumps(dict(ms=ms, loss=loss, version="9.9", **more)), flush=True)
        if not sys.stdin.readline():
            return
def after(name):
    return words[words.index(name) + 1]
if words[0] == "-c":  # imports
    pass
elif words[0] == "models":
    print("srresnet: one\\n  blocks  Blocks\\n\\nmlp: another\\n\\nodd: a third\\n\\nfancy: a fourth,\\n  of two lines")
elif words[0] == "bench":
    if "--export" in words:
        pathlib.Path(after("--export"), "case").write_text(" ".join([after("--model"), after("--batch"), after("--patch"), *words[words.index("--export") + 2:]]))
    serve({{"srresnet": 100, "mlp": 5, "odd": 1}}[after("--model")] / int(after("--threads")), 0.5, precision=after("--precision"), losses={{}})
else:
    _, folder, variant, threads = words
    case = (pathlib.Path(folder) / "case").read_text().split()
    ms = {{"srresnet": 240, "mlp": 4, "odd": 1}}[case[0]] / int(threads)
    if case[0] == "srresnet" and variant == "bf16-compile" and "blocks=9" in case:
        sys.exit("there is no compiler")
    serve(ms * (0.75 if "compile" in variant else 1), 0.7 if case[:2] == ["mlp", "1"] else 0.5001 if variant[:2] == "bf" else 0.5)
"""


# In place of codistill for choices: the rule's step takes a tenth longer, and each cache has a step of its own.
CHOOSER = """#!{python}
import json, os, pathlib, sys
cache = pathlib.Path(os.environ["XDG_CACHE_HOME"])
(cache / "codistill").mkdir(exist_ok=True)
if sys.argv[2] == "step":
    while True:
        index = int(cache.name) if cache.name.isdigit() else 0
        print(json.dumps(dict(ms=(110 if os.environ.get("COD_CPU_CONVOLUTION") == "fixed" else 100) + index)), flush=True)
        if not sys.stdin.readline():
            break
elif os.environ.get("COD_CPU_ISA") == "avx512":
    sys.exit("this processor has no avx512")
"""


def choose(program, *words):
    report = program.with_name("choices.json")
    done = subprocess.run([sys.executable, "-B", choices.__file__, "--codistill", program, "--threads", "1", "--pairs", "1", "--processes", "1", "--json",
                           report, *words], capture_output=True, text=True, env={**os.environ, "COD_DATA": "/nowhere", "XDG_CACHE_HOME": str(program.parent)})
    return done.returncode, done.stdout, done.stderr, json.loads(report.read_text())["results"] if report.exists() else None


def check_choices():
    """What is measured of which network and instruction set, and the last line."""
    with tempfile.TemporaryDirectory() as name:
        program = pathlib.Path(name) / "program"
        program.write_text(CHOOSER.format(python=sys.executable))
        program.chmod(0o755)

        code, said, errors, results = choose(program, "rule", "--network", "mlp", "--isa", "amx,avx512,avx2", "--precision", "f32,bf16")
        assert code == 1 and "no avx512" in errors, (said, errors)  # asked for by name
        assert [(r["isa"], r["precision"]) for r in results] == [("amx", "f32"), ("amx", "bf16"), ("avx2", "f32")], results
        assert all(abs(r["ratio"] - 1.1) < 1e-9 for r in results) and said.endswith("\nlargest_ratio 1.100\n"), said

        code, said, errors, results = choose(program, "rule", "--network", "mlp,cnn", "--precision", "f32")
        assert code == 0 and [(r["network"], r["isa"]) for r in results] == [
            (network, isa) for network in ("mlp", "cnn") for isa in ("amx", "avx512_bf16", "avx2")], (said, errors)

        code, said, errors, results = choose(program, "busy", "--network", "mlp", "--precision", "f32")
        assert code == 0 and said.endswith("\nlargest_spread 0.040\n") and [len(times) for times in results[0]["ms"]] == [choices.CACHES], (said, errors)

        code, said, errors, results = choose(program, "start", "--network", "mlp,srgan", "--precision", "bf16")
        assert code == 0 and "\nlargest_empty_s " in said and [r["network"] for r in results] == ["mlp", "srgan"], (said, errors)
        assert all(r["isa"] == "" and 0 < r["full_s"] < 60 for r in results), results


def compare(folder, *words):
    """(exit code, both outputs, what --json wrote, or None) of step_vs_pytorch with the stand-ins."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, "-B", step_vs_pytorch.__file__, "--codistill", folder / "bin/python", "--threads", "1", "--pairs", "2",
                           "--json", report, *words], capture_output=True, text=True, env={**os.environ, "COD_BENCH_VENV": str(folder)})
    return done.returncode, done.stdout, done.stderr, json.loads(report.read_text()) if report.exists() else None


def check_networks():
    """Which networks are compared, with what, and what the table says."""
    assert "odd" not in step_vs_pytorch.SIZES and "fancy" not in step_vs_pytorch.SIZES
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        program = folder / "bin/python"
        program.write_text(STAND_IN.format(python=sys.executable))
        program.chmod(0o755)

        code, said, errors, report = compare(folder, "--model", "all", "--precision", "bf16")
        assert code == 0, (said, errors)
        assert "| srresnet | 16 of 24x24 | 1 | bf16-compile | 180 | bf16 | 100 | 1.80 |" in said, said
        assert "| mlp | 100 of 28x28, channels=1, hidden=1024,1024,1024,1024 | 1 | bf16-compile | 3.00 | bf16 | 5.00 | 0.60 |" in said, said
        assert said.endswith("\nsrresnet ratio_1t 1.80\nmlp ratio_1t 0.60\n"), said
        for left_out in ("odd", "fancy"):
            assert f"warning: {left_out} is not compared: PyTorch's side does not know it" in errors and f"| {left_out} | | | not compared" in said, errors
        assert [(r["model"], r["threads"], r["best"], r["ratio"]) for r in report["results"]] == [
            ("srresnet", 1, "bf16-compile", 1.8), ("mlp", 1, "bf16-compile", 0.6)] and list(report["missing"]) == ["odd", "fancy"], report

        code, said, errors, report = compare(folder, "--precision", "bf16", "--batch", "3", "--patch", "7", "blocks=9")
        assert code == 0 and "PyTorch bf16-compile is left out" in errors and "there is no compiler" in errors, (said, errors)
        assert "| srresnet | 3 of 7x7, blocks=9 | 1 | bf16-eager (without bf16-compile) | 240 | bf16 | 100 | 2.40 |" in said, said
        assert said.endswith("\nratio_1t 2.40\n"), said

        code, said, errors, _ = compare(folder, "--variants", "f32-eager", "--precision", "f32", "--model", "mlp", "hidden=8")
        assert code == 0 and "| mlp | 100 of 28x28, channels=1, hidden=8 | 1 | f32-eager | 4.00 | f32 | 5.00 | 0.80 |" in said, (said, errors)

        code, said, errors, report = compare(folder, "--model", "mlp", "--model", "srresnet", "--precision", "f32", "--batch", "1")
        assert code == 1 and "warning: mlp: PyTorch f32-eager computes other losses than codistill" in errors, (said, errors)
        assert "| srresnet | 1 of 24x24 | 1 | f32-compile | 180 |" in said and "| mlp | | | not compared: failed, see above" in said, said
        assert list(report["missing"]) == ["mlp"], report

        for words, expected, text in ((["--model", "none"], 1, "there is no model 'none'; `codistill models` lists srresnet, mlp, odd, fancy"),
                                      (["--model", "fancy"], 1, "no network is left to compare"),
                                      (["--model", "mlp", "--model", "srresnet", "a=1"], 2, "options of a model go with one --model"),
                                      (["--model", "all", "a=1"], 2, "options of a model go with one --model"),
                                      (["blocks"], 2, "'blocks' is no list of option=value")):
            code, said, errors, _ = compare(folder, *words)
            assert code == expected and text in errors, (words, code, errors)


def check_agreement():
    """Losses that differ end a comparison, and one network's failure does not hide the others."""
    def refuses(*losses_and_tolerances):
        try:
            step_vs_pytorch.check_losses("PyTorch", *losses_and_tolerances)
        except common.Failure as failure:
            return str(failure)
        return ""

    same = [1.0, 0.9, 0.8]
    assert step_vs_pytorch.check_losses("PyTorch", same, same, 1e-5) == 0
    assert "not the same step" in refuses([1.0, 0.9, 0.8001], same, 1e-5)
    assert refuses([1.0, 0.9, 0.8001], same, 1e-5, 1e-3) == ""
    assert "not the same step" in refuses([1.0001, 0.9, 0.8], same, 1e-5, 1e-3), "the first loss is that of equal weights"
    assert "not the same step" in refuses([1.0, float("nan"), 0.8], same, 1e-5, 1e-3)


def main():
    check_networks()
    check_choices()
    check_agreement()
    zen3, amx, arm = ("flags : fpu avx2 fma\n", "flags : fpu avx2 avx512f amx_bf16\n", "Features : fp asimd bf16\n")
    tried, said = variants(None, zen3)
    assert tried == ["f32-eager", "f32-compile"] and "bf16-eager, bf16-compile: left out" in said, (tried, said)
    assert variants("bf16-eager", zen3) == (["bf16-eager"], ""), "what is asked for by name is tried"
    for text in (amx, arm):
        assert variants(None, text) == (list(step_vs_pytorch.VARIANTS), ""), text
    times = {"onnxruntime": [30.0, 10.0, 20.0], "f32": [16.0]}
    assert upscale_vs_onnxruntime.last_line(times, {}) == "ratio_bf16 - ratio_int8 - psnr_loss_int8 - ratio_f32 1.25"
    times.update(bf16=[10.0], int8=[5.0])
    assert upscale_vs_onnxruntime.last_line(times, {"f32": 30.0, "int8": 29.975}) == "ratio_bf16 2.00 ratio_int8 4.00 psnr_loss_int8 0.025 ratio_f32 1.25"


if __name__ == "__main__":
    main()
