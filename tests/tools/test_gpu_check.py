#!/usr/bin/env python3
"""tools/gpu-check.sh rehearsed without a GPU: with programs that stand for those that it starts, and made-up figures.

usage: test_gpu_check.py                     with stand-ins alone
       test_gpu_check.py bundle CODISTILL    a real bundle, trained with on the processor
       test_gpu_check.py packed FOLDER       programs for a GPU, packed from this folder of a build, on a machine without one
       test_gpu_check.py emulated FOLDER     both calls with this folder's programs for the emulated GPU, on small networks
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK = ["libraries", "losses of four steps", "smoke", "our steps alone", "tests on the device", "times of training steps", "compute-sanitizer, memcheck"]
REST = ["losses of 100 steps", "Nsight Compute", "times of training steps", "ResNet-50 against ref", "compute-sanitizer, racecheck"]
SUMMARY = "step, ms          ours\nsrresnet-16     1.0000\n\ngoals: 20 reached, 2 MISSED, 3 not measured\n"
TESTS = ("parity", "fused", "narrow", "training", "library", "group", "models", "resnet50")

# Builds stand-ins: a benchmark that says how it is used, and tests, of which STAND_TEST ends with STAND_CODE after STAND_TEST_S.
CMAKE = f"""
case "$*" in *--build*) ;; *) exit ;; esac
sleep "${{STAND_BUILD_S-0}}" || exit
mkdir -p build/gpu-check/tests/cuda
cd build/gpu-check/tests/cuda || exit
printf '#!/bin/bash\nexit 2\n' >bench_cuda_step
for name in {" ".join(TESTS)}; do
    cat >test_cuda_${{name}}_device <<'TEST'
#!/bin/bash
name=$(basename "$0" _device)
echo "$name sync=${{COD_CUDA_SYNC-0}} choice=$COD_CUDA_CONVOLUTION" >>"$STAND_LOG"
[ "$name" = "test_cuda_${{STAND_TEST-}}" ] || exit 0
echo "${{STAND_SAYS-}}"
sleep "${{STAND_TEST_S-0}}" || exit
exit "${{STAND_CODE-0}}"
TEST
done
chmod +x *
"""

PYTHON = f"""
words="$*"
value() {{ echo "$words" | sed -n "s/.*--$1 \\([^ ]*\\).*/\\1/p"; }}
case "$words" in
    *gpu_steps.py*)
        echo "steps $words" >>"$STAND_LOG"
        echo "choices $COD_CUDA_CACHE" >>"$STAND_LOG"
        begin=$(value begin)
        [ -z "$begin" ] || echo $$ >"$STAND_LOG.pid"
        [[ $words != *alone.json* ]] || [ ! -f "$STAND_LOG.pid" ] || echo "compiler $(cut -d ' ' -f 3 "/proc/$(cat "$STAND_LOG.pid")/stat")" >>"$STAND_LOG"
        while [ -n "$begin" ] && [ ! -s "$begin" ]; do {shutil.which("sleep")} 0.05; done
        [ -z "$begin" ] || echo "begun $(cat "$begin")" >>"$STAND_LOG"
        echo '{{}}' >"$(value json)"
        [ -z "$(value summary)" ] || printf '{SUMMARY.encode("unicode_escape").decode()}' | tee "$(value summary)"
        [ "${{STAND_STEPS-0}}" -ne 3 ] || echo 'not measured: resnet50-64: no time was left'
        exit "${{STAND_STEPS-0}}" ;;
    *gpu_losses.py*) echo "losses $words sync=${{COD_CUDA_SYNC-0}} chain=${{COD_CUDA_CHAIN-1}}" >>"$STAND_LOG"; exit "${{STAND_LOSSES-0}}" ;;
    *kernel_resources.py*) echo 'no spills'; exit ;;
    -) case "$(cat)" in *cudnnGetVersion*) echo "libcudnn.so.9 91900" ;; esac; exit ;;
esac
exec {sys.executable} "$@"
"""

STANDINS = {
    "cmake": CMAKE,
    "python3": PYTHON,
    "nvidia-smi": 'case "$*" in *compute_cap*) echo 9.0 ;; *) echo "A GPU" ;; esac\n',
    "compute-sanitizer": 'case "$*" in *"losses mlp"*) sleep "${STAND_SANITIZER_S-0}" || exit ;; esac; exit "${STAND_SANITIZER-0}"\n',
    "ncu": 'echo "conv3_run_kernel"; echo "    Duration us 7.1"; exit "${STAND_NCU-0}"\n',
}

# A clock that moves where stand-ins sleep, and at once: nothing depends on how fast this machine is.
CLOCK = {
    "date": 'cat "$STAND_CLOCK"\n',
    "timeout": '[ "$1" != -k ] || shift 2\nSTAND_LIMIT_S=$1 exec "${@:2}"\n',
    "sleep": """
passed=$(($1 < STAND_LIMIT_S ? $1 : STAND_LIMIT_S))
echo $(($(cat "$STAND_CLOCK") + passed)) >"$STAND_CLOCK"
[ "$passed" -eq "$1" ] || exit 124
""",
}


class Rehearsal:
    """A copy of the scripts with the programs that they start replaced."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in ("tools", "bin", "out", "build", "cmake", "src", "tests"):
            (self.folder / name).mkdir()
        (self.folder / "CMakeLists.txt").touch()
        for path in (ROOT / "tools").glob("gpu-*.sh"):
            shutil.copy(path, self.folder / "tools")
        for name, text in STANDINS.items():
            self.program(self.folder / "bin" / name, text)

    @staticmethod
    def program(path, text):
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)

    def pack_quickly(self):
        self.program(self.folder / "bin/xz", f'[ "$1" = -d ] || set -- -T 2 -0\nexec {shutil.which("xz")} "$@"\n')

    def run(self, *arguments, **variables):
        """The exit code, the lines, and the seconds that passed on the stand-ins' clock."""
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "OUT": str(self.folder / "out"),
                       "STAND_LOG": str(self.folder / "log"), "STAND_CLOCK": str(self.folder / "clock"), "COD_PACK_PROGRAMS": str(variables.pop("PACK", "")),
                       "PYTHONPATH": str(variables.pop("PATH", "")), **{f"STAND_{name}": str(value) for name, value in variables.items()}}
        for name in ("COD_CUDA_CACHE", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        for path in (self.folder / "out").iterdir():
            path.unlink()
        (self.folder / "log").write_text("")
        (self.folder / "clock").write_text("0")
        done = subprocess.run(["tools/gpu-check.sh", *arguments], cwd=self.folder, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines(), int((self.folder / "clock").read_text())

    def log(self, word):
        """What a stand-in was started with, as the words behind `word`."""
        return [line.split(" ", 1)[1] for line in (self.folder / "log").read_text().splitlines() if line.startswith(f"{word} ")]


def ended(lines):
    """The lines that follow "finished"."""
    return lines[max(i for i, line in enumerate(lines) if line.startswith("== finished")) + 1:]


def expect(condition, what, *seen):
    if not condition:
        sys.exit("\n".join(["FAILED: " + what, *map(str, seen)]))


def rows_of(lines, names):
    """Where each row begins."""
    return [next((i for i, line in enumerate(lines) if line.startswith(f"== {name}")), -1) for name in names]


def failed(lines):
    return {line.removeprefix("gpu-check: FAILED: ") for line in lines if line.startswith("gpu-check: FAILED: ")}


def missing(lines):
    return [line.removeprefix("gpu-check: not measured: ") for line in lines if line.startswith("gpu-check: not measured: ")]


def all_is_well(r):
    code, lines, _ = r.run("quick")
    seen = rows_of(lines, QUICK)
    expect(code == 0 and seen == sorted(seen) and seen[0] >= 0, "the rows' order", code, *lines)
    end = ended(lines)
    expect(end[0].startswith("gpu-check: seconds: libraries ") and end[1:] == ["gpu-check: tests on the device: 7 passed, 0 skipped, 0 failed", "gpu-check: all of it passed",
                                                                               "", *SUMMARY.splitlines()], "the table and the goals do not come last", *lines)
    expect(any(line.startswith("gpu-check: commit ") for line in lines), "no commit", *lines)
    kept = {path.name for path in (r.folder / "out").iterdir()}
    expect(kept == {"gpu-check.log", "gpu-check.tests.log", "alone.json", "turns.json"}, "kept", kept)
    expect(set(r.log("choices")) == {f"{r.folder}/build/gpu-check.choices"}, "processes do not share their choices", r.log("choices"))
    # PyTorch compiles from the first second on, and is timed later; the first steps run in three ways.
    log = (r.folder / "log").read_text().splitlines()
    expect(log[0].startswith("steps ") and "--begin" in log[0] and "--forms graph" in log[0], "PyTorch does not begin first", *log)
    expect([line[line.index("sync="):] for line in r.log("losses")] == ["sync=1 chain=0", "sync=0 chain=0", "sync=0 chain=1"], "ways of the first steps", *log)
    expect(r.log("compiler") == ["T"], "PyTorch compiles while our steps are timed", *log)
    expect(len(r.log("begun")) == 1 and 100 <= int(r.log("begun")[0]) <= 300, "seconds of the turns", *log)
    expect({line.split()[2] for line in log if line.startswith("test_cuda_")} == {"choice=fixed"}, "tests with timed choices", *log)

    code, lines, _ = r.run("rest")
    seen = rows_of(lines, REST)
    expect(code == 0 and seen == sorted(seen) and seen[0] >= 0, "the rows' order", code, *lines)
    kept = {path.name for path in (r.folder / "out").iterdir()}
    expect(kept == {"gpu-check.log", "gpu-check.tests.log", "networks.json", "profile.txt"}, "kept", kept)
    expect("mlp4-100" in r.log("steps")[0] and "--begin" in r.log("steps")[0] and len(r.log("steps")) == 1, "networks", r.log("steps"))
    code, lines, _ = r.run("memcheck", "smoke")
    expect(code == 0 and not r.log("steps") and ended(lines)[1:] == ["gpu-check: tests on the device: 5 passed, 0 skipped, 0 failed", "gpu-check: all of it passed"],
           "an old table is shown where the times were not taken", *lines)


def failures_are_named(r):
    code, lines, _ = r.run("smoke", TEST="fused", CODE=77)
    expect(code == 1 and failed(lines) == {"1 tests that were skipped, although there is a GPU"}
           and "gpu-check: tests on the device: 4 passed, 1 skipped, 0 failed" in lines, "a skipped test", code, *lines)
    code, lines, _ = r.run("quick", TEST="fused", CODE=8, LOSSES=1, SANITIZER=9, STEPS=1, SAYS="the reason")
    expect(code == 1 and {"test_cuda_fused_device", "the first steps", "the first steps with COD_CUDA_CHAIN=0", "our steps alone",
                          "memcheck on mlp of 4 1 1 16 in bf16"} <= failed(lines) and lines[-1] == SUMMARY.splitlines()[-1] and "the reason" in lines
           and "gpu-check: tests on the device: 6 passed, 0 skipped, 1 failed" in lines, "failures", code, *lines)
    # What failed first is repeated with waits behind each layer.
    expect(r.log("losses")[-1].endswith("sync=1 chain=0") and len(r.log("losses")) == 4, "not repeated", *r.log("losses"))
    r.run("smoke", TEST="fused", CODE=8)
    expect(r.log("test_cuda_fused") == ["sync=0 choice=fixed", "sync=1 choice=fixed"], "not repeated", r.log("test_cuda_fused"))
    # A library that the tuner refuses may be right, and our kernels wrong.
    code, lines, _ = r.run("smoke", TEST="fused", SAYS="cuda: cudnn-1 of conv2d is not used: its results are not those of our kernels")
    expect(code == 1 and failed(lines) == {"test_cuda_fused_device"}, "a refused library", code, *lines)
    code, lines, _ = r.run("profile", NCU=1)
    expect(code == 3 and missing(lines) == ["profile: ncu ended with 1"], "a profiler that fails", code, *lines)


def missing_time_is_told(r):
    code, lines, _ = r.run("networks", STEPS=3)
    expect(code == 3 and missing(lines) == ["resnet50-64: no time was left"] and "gpu-check: all of it passed, but for what was not measured" in lines,
           "what a script did not measure", code, *lines)
    for name, text in CLOCK.items():
        r.program(r.folder / "bin" / name, text)
    # 40 s: a test hangs until its row's share is over, and the sanitizer in one of its runs; what is left is for the rest.
    code, lines, took = r.run("--minutes", "0.67", "smoke", "memcheck", "losses", TEST="narrow", TEST_S=600, SANITIZER_S=600)
    expect(code == 3 and took < 40 and missing(lines) == ["test_cuda_narrow_device: cut off", "memcheck on mlp of 4 1 1 16 in bf16: cut off"], f"{took} s", code, *lines)
    expect("gpu-check: tests on the device: 4 passed, 0 skipped, 0 failed" in lines and len(r.log("losses")) == 1, "what was measured", *lines)
    # Nothing is left after the build.
    code, lines, _ = r.run("--minutes", "0.1", "losses", BUILD_S=2)
    expect(code == 3 and missing(lines) == ["losses: no time was left"], "no time", code, *lines)
    # By the machine's clock: a build that hangs is cut off.
    for name in CLOCK:
        (r.folder / "bin" / name).unlink()
    code, lines, _ = r.run("--minutes", "0.1", "smoke", BUILD_S=600)
    expect(code == 1 and failed(lines) == {"build, which was not done after 0.1 minutes"} and missing(lines) == ["smoke"], "the build", code, *lines)


def the_commit_is_told(r):
    def git(*words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=r.folder, capture_output=True, text=True, check=True).stdout.strip()

    def told():
        return next(line for line in r.run("memcheck")[1] if line.startswith("gpu-check: commit "))

    expect(told() == "gpu-check: commit unknown; tools/gpu-check.sh --pack takes it along", "without git", told())
    (r.folder / ".gitignore").write_text("build/\nbin/\nout/\nlog\n")
    (r.folder / "src/a.c").write_text("int a;\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    head = git("rev-parse", "HEAD")
    expect(told() == f"gpu-check: commit {head}", "by git", told())
    programs = r.folder / "bin/programs"  # of which cmp is one that starts, and says with 2 how it is used
    programs.mkdir()
    shutil.copy(shutil.which("cmp"), programs / "bench_cuda_step")
    packed = r.run("--pack", PACK=programs)
    expect(packed[0] == 0 and "1 programs for sm_90a" in packed[1][-1], "not packed", packed)
    expect("== the packed programs" in "\n".join(r.run("memcheck")[1]), "what is packed is not taken")
    (r.folder / ".git").rename(r.folder / "bin/git-is-elsewhere")
    expect(told() == f"gpu-check: commit {head}", "from what was packed", told())
    (r.folder / "src/a.c").write_text("int b;\n")
    lines = r.run("memcheck")[1]
    expect("gpu-check: the packed programs are not used: they are of other sources" in lines and rows_of(lines, ["build"]) != [-1], "programs of other sources", *lines)
    expect(told() == f"gpu-check: commit {head} with changes since tools/gpu-check.sh --pack", "other sources than those packed", told())
    (r.folder / "bin/git-is-elsewhere").rename(r.folder / ".git")
    expect(told() == f"gpu-check: commit {head} with changes", "changes that git sees", told())
    r.run("alone")
    expect(f"--commit {head} with changes" in r.log("steps")[0], "not in the results", r.log("steps"))


def libraries_of_wheels_are_found(r):
    """A bundle's command finds cuDNN and others in Python's wheels; the machine's own paths come first."""
    wheels = r.folder / "site/nvidia"
    for name in ("cudnn/lib", "cu13/lib", "cudnn/include"):
        (wheels / name).mkdir(parents=True)
    bundle = r.folder / "bundle"
    bundle.mkdir()
    shutil.copy(ROOT / "tools/gpu-whole.sh", bundle / "whole.sh")
    shutil.copy(ROOT / "tools/gpu-libraries.sh", bundle / "libraries.sh")
    r.program(bundle / "codistill", 'echo "libraries: $LD_LIBRARY_PATH"; exit 1\n')
    for given, wanted in (({}, ""), ({"LD_LIBRARY_PATH": "/own"}, "/own:")):
        environment = {**os.environ, "PYTHONPATH": str(r.folder / "site")}
        environment.pop("LD_LIBRARY_PATH", None)
        done = subprocess.run([bundle / "whole.sh", r.folder / "out"], env={**environment, **given}, capture_output=True, text=True)
        expect(done.stdout.startswith(f"libraries: {wanted}{wheels}/cu13/lib:{wheels}/cudnn/lib"), "libraries", done)
    r.program(bundle / "codistill", 'echo "cuda: cudnn-1 of conv2d is not used: its results are not those of our kernels"\n')
    done = subprocess.run([bundle / "whole.sh", r.folder / "out"], env=environment, capture_output=True, text=True)
    expect(done.returncode == 1 and "whole: FAILED: compare: a library's results are refused" in done.stdout, "a refused library", done)


def bundle_of(r, photo_bytes, **standins):
    """tools/gpu-bundle.sh around a small program, with one photograph of so many bytes and stand-ins for programs; xz packs nothing."""
    folder, data = r.folder / "packing", r.folder / "data"
    for path in (folder / "tools", folder / "configs", folder / "bin", data / "photos", data / "set5", data / "mnist"):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("gpu-bundle.sh", "gpu-whole.sh", "gpu-libraries.sh"):
        shutil.copy(ROOT / "tools" / name, folder / "tools" / name)
    for name in ("set5/a_HR.png", "mnist/a.gz"):
        (data / name).touch()
    with open(data / "photos/a.jpg", "wb") as photo:
        photo.truncate(photo_bytes)
    for name, text in {"xz": "exec cat\n", **standins}.items():
        r.program(folder / "bin" / name, text)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "COD_DATA": str(data), "COD_BUNDLE_PROGRAM": shutil.which("tar")}
    return subprocess.run([folder / "tools/gpu-bundle.sh"], env=environment, capture_output=True, text=True)


def bundles_have_limits(r):
    """What cannot travel is refused: more than 47 MB, and a program whose libraries are not here, which are named."""
    if not shutil.which("ompi_info"):
        print("without Open MPI nothing is packed")
        return
    done = bundle_of(r, 60_000_001, ldd="exit 0\n")
    expect(done.returncode == 1 and re.search(r"bundle.tar.xz has \d+ bytes, more than 47000000$", done.stderr.strip()), "a large bundle", done)
    done = bundle_of(r, 1000, ldd="printf '\\tlibabsent.so.1 => not found\\n'\n")
    expect(done.returncode == 1 and "lacks libraries here: \tlibabsent.so.1 => not found" in done.stderr, "a missing library", done)
    (r.folder / "packing/bin/ldd").unlink()
    done = bundle_of(r, 1000)
    expect(done.returncode == 0 and re.search(r"^gpu-bundle: build/gpu-bundle, \d+ MB packed, \d+ MB unpacked, \d+ libraries$", done.stdout, re.M), "a small bundle", done)
    listed = subprocess.run(["tar", "-t"], input=(r.folder / "packing/build/gpu-bundle/bundle.tar.xz").read_bytes(), capture_output=True)
    names = set(listed.stdout.decode().splitlines())
    needed = {f"codistill/{name}" for name in ("codistill", "bin/codistill", "whole.sh", "libraries.sh", "mpi/bin/mpirun", "data/photos/a.jpg", "data/set5/a_HR.png", "data/mnist/a.gz")}
    expect(needed <= names, "what a bundle lacks", needed - names)


def a_real_bundle_is_rehearsed(r, program):
    """Packed from the release build, quickly; unpacked and run elsewhere on the CPU, without what this environment says."""
    data = pathlib.Path(os.environ.get("COD_DATA", ROOT / "data"))
    if not shutil.which("ompi_info") or not (data / "mnist").is_dir():
        print("without Open MPI and data there is no real bundle")
        return
    for name in ("gpu-bundle.sh", "gpu-whole.sh"):
        shutil.copy(ROOT / "tools" / name, r.folder / "tools" / name)
    shutil.copytree(ROOT / "configs", r.folder / "configs")
    for name in ("python3", "nvidia-smi"):
        (r.folder / "bin" / name).unlink()
    r.pack_quickly()
    environment = {"PATH": f"{r.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(r.folder), "COD_DATA": str(data), "COD_BUNDLE_PROGRAM": str(program),
                   **{name: value for name, value in os.environ.items() if name.startswith("OMPI_")}}
    for arguments, told in ((["--bundle"], "MB packed"), (["--whole", "--rehearse"], "gpu-check: all of it passed")):
        done = subprocess.run(["tools/gpu-check.sh", *arguments], cwd=r.folder, env=environment, capture_output=True, text=True)
        expect(done.returncode == 0 and told in done.stdout, f"{arguments}: {done.stdout}{done.stderr}")


def real_programs_are_packed(r, folder):
    """Programs for a GPU start on a machine that has neither one nor nvcc, and each test skips itself by name; a broken program does not pass."""
    if not (folder / "bench_cuda_step").exists():
        print("the CUDA backend is not built")
        sys.exit(77)
    for name in ("python3", "nvidia-smi", "cmake"):
        (r.folder / "bin" / name).unlink()
    r.program(r.folder / "bin/nvidia-smi", "exit 9\n")
    r.pack_quickly()
    programs = r.folder / "bin/programs"
    programs.mkdir()
    names = ("test_cuda_fused_device", "test_cuda_library_device")
    for name in ("bench_cuda_step", *names):
        (programs / name).symlink_to(folder / name)
    code, lines, _ = r.run("--pack", PACK=programs)
    expect(code == 0 and "3 programs for sm_90a" in lines[-1], "not packed", code, *lines)
    (r.folder / "build/gpu-pack").rename(r.folder / "out/gpu-pack")
    shutil.rmtree(r.folder / "build")
    (r.folder / "build").mkdir()
    (r.folder / "out/gpu-pack").rename(r.folder / "build/gpu-pack")
    code, lines, _ = r.run("quick")
    expect(code == 77 and lines[-1] == "gpu-check: 2 tests start and skip themselves; nothing else was run", "without a GPU", code, *lines)
    expect({line.split(",")[0] for line in lines if line.startswith("skipped")} == {f"skipped  {name}" for name in names}, "not by name", *lines)
    print("\n".join(lines))
    # Cut short, a program does not start: this machine would have to build it.
    with open(programs / "short", "wb") as file:
        file.write((programs / "bench_cuda_step").read_bytes()[:100000])
    (programs / "short").chmod(0o755)
    shutil.copy(programs / "short", r.folder / "bench_cuda_step")
    subprocess.run(["tar", "-cJf", r.folder / "build/gpu-pack/programs.tar.xz", "-C", r.folder, "./bench_cuda_step"], check=True)
    r.program(r.folder / "bin/cmake", "echo cannot build; exit 1\n")
    code, lines, _ = r.run("quick")
    expect(code == 1 and any(line.startswith("gpu-check: the packed programs are not used: they do not start here") for line in lines)
           and failed(lines) == {"build"}, "a program that does not start", code, *lines)


# PyTorch's side, and a module of its name.
PYTORCH = """
import json, sys
if sys.argv[1] == "limits":
    print(json.dumps({"tflops": 700, "gbytes": 3000, "card": "a card", "version": "2", "cudnn": 9}))
    sys.exit()
optimiser = "adam" if sys.argv[4] == "srresnet" else "sgd"
print(json.dumps({"forms": {name: {"first_s": 1, "peak_mib": 20, "optimiser": optimiser} for name in sys.argv[3].split(",")}}), flush=True)
for line in sys.stdin:
    print(json.dumps({"ms": 4.0}), flush=True)
"""


def both_calls_run_emulated(r, folder):
    """Everything but PyTorch and NVIDIA's tools as it runs beside a GPU, on networks that the emulated one computes in seconds."""
    for name in ("python3", "cmake"):
        (r.folder / "bin" / name).unlink()
    r.pack_quickly()
    shutil.copytree(ROOT / "tools/bench", r.folder / "tools/bench", ignore=lambda *_: ["__pycache__"])
    (r.folder / "tools/bench/gpu_pytorch.py").write_text(PYTORCH)
    (r.folder / "site").mkdir()
    (r.folder / "site/torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    mlp = '("mlp", "height=1 width=1 channels=16 classes=4 hidden=16", (4, 1, 1, 16)),'
    small = {"gpu_steps.py": [(r'\("srresnet", .*\)\),|\("mlp", mlp.*\)\),|\("resnet50", .*\)\),', mlp), (r'"--rounds", type=int, default=9', '"--rounds", type=int, default=2'),
                              (r"1550000,25000000", "30000")],
             "gpu_losses.py": [(r'\("resnet18", .*\)\),|\("mlp", .*\)\),|\("srresnet", .*\)\),', mlp), (r'"--steps", type=int, default=100', '"--steps", type=int, default=6')]}
    for name, changes in small.items():
        path = r.folder / "tools/bench" / name
        text = path.read_text()
        for old, new in changes:
            text, count = re.subn(old, new, text)
            expect(count > 0, f"{name} has no {old}")
        path.write_text(text)
    programs = r.folder / "bin/programs"
    programs.mkdir()
    for name, program in {"bench_cuda_step": "bench_cuda_emulated", "test_cuda_parity_device": "test_cuda_quantise", "test_cuda_fused_device": "test_cuda_norm_halves",
                          "test_cuda_narrow_device": "test_cuda_int8_ranges", "test_cuda_training_device": "test_cuda_slopes", "test_cuda_library_device": "test_cuda_rounded",
                          "test_cuda_group_device": "test_cuda_gate", "test_cuda_resnet50_device": "test_cuda_averages"}.items():
        (programs / name).symlink_to(folder / program)
    code, lines, _ = r.run("--pack", PACK=programs)
    expect(code == 0, "not packed", code, *lines)
    known = subprocess.run([sys.executable, "-B", "tools/bench/gpu_losses.py", "--bench", programs / "bench_cuda_step", "--runs", "ref-f32", "--device", "none", "--steps", "6",
                            "--json", "build/gpu-pack/losses.json"], cwd=r.folder, capture_output=True, text=True)
    expect(known.returncode == 0, "losses of ref", known)
    losses = json.loads((r.folder / "build/gpu-pack/losses.json").read_text())
    for case in losses.values():
        if "losses" in case:  # in PyTorch's place, which is not here
            case["losses"] |= {"PyTorch f32": case["losses"]["ref f32"], "autocast": [1.01 * x for x in case["losses"]["ref f32"]]}
    losses["srresnet"] = losses["resnet18-small"]  # the same network here, which takes ref too long elsewhere
    (r.folder / "build/gpu-pack/losses.json").write_text(json.dumps(losses))
    for call, names in (("quick", QUICK), ("rest", REST)):
        code, lines, _ = r.run(call, PATH=r.folder / "site")
        print("\n".join(lines))
        libraries = {"libcudnn.so.9", "libcublasLt.so.13", "libnvrtc.so.13", "libnccl.so.2"}  # which need not be here
        absent = [what for what in missing(lines) if what.split()[0] in libraries]
        seen = rows_of(lines, names)
        expect(code == (3 if absent else 0) and missing(lines) == absent and seen == sorted(seen) and seen[0] >= 0, call, code, *lines)
        expect(lines[-1].startswith("goals: ") and len(list((r.folder / "out").iterdir())) <= 8, "the end", *lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kind = {"bundle": a_real_bundle_is_rehearsed, "packed": real_programs_are_packed, "emulated": both_calls_run_emulated}[sys.argv[1]]
        with tempfile.TemporaryDirectory() as name:
            kind(Rehearsal(pathlib.Path(name).resolve()), pathlib.Path(sys.argv[2]).absolute())
        sys.exit(0)
    for case in (all_is_well, failures_are_named, missing_time_is_told, the_commit_is_told, libraries_of_wheels_are_found, bundles_have_limits):
        with tempfile.TemporaryDirectory() as name:
            case(Rehearsal(pathlib.Path(name).resolve()))
