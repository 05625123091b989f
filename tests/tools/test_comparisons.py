#!/usr/bin/env python3
"""What the comparisons of tools/bench decide without the programs that they compare with: test_comparisons.py"""
import contextlib
import io
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/bench"))
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


def main():
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
