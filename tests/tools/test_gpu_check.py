#!/usr/bin/env python3
"""tools/gpu-check.sh rehearsed without a GPU: with programs that stand for cmake, ctest, nvidia-smi and the sanitizer, and made-up figures."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["tests on the device", "times of a training step", "losses of 100 steps", "compute-sanitizer"]
SUMMARY = "step, ms          ours\nsrresnet-16     1.0000\n\ngoals: 20 reached, 2 MISSED, 3 not measured\n"

CTEST = """
case "$*" in *-N*)
    printf '  Test  #1: test_cuda_parity_device\\n  Test  #2: test_cuda_fused_device\\n  Test #13: cuda_resources\\n'; exit ;;
esac
echo '    Start  1: test_cuda_parity_device'
echo ' 1/3 Test  #1: test_cuda_parity_device ..........   Passed    1.20 sec'
echo " 2/3 Test  #2: test_cuda_fused_device ...........${STAND_TEST-   Passed    1.20 sec}"
sleep "${STAND_TESTS_S-0}" || exit
echo ' 3/3 Test #13: cuda_resources ...................   Passed    0.10 sec'
exit "${STAND_TESTS-0}"
"""

PYTHON = f"""
words="$*"
summary=${{words#*--summary }}
case "$words" in
    *gpu_steps.py*)
        echo "steps $words" >>"$STAND_LOG"
        echo "choices $COD_CUDA_CACHE" >>"$STAND_LOG"
        echo '{{}}' >build/steps.json
        printf '{SUMMARY.encode("unicode_escape").decode()}' | tee "${{summary%% *}}"
        [ "${{STAND_STEPS-0}}" -ne 3 ] || echo 'not measured: resnet50-64: no time was left'
        exit "${{STAND_STEPS-0}}" ;;
    *gpu_losses.py*) echo "losses $words" >>"$STAND_LOG"; exit "${{STAND_LOSSES-0}}" ;;
    *kernel_resources.py*) echo 'no spills'; exit ;;
esac
exec {sys.executable} "$@"
"""

STANDINS = {
    "cmake": 'case "$*" in *--build*) sleep "${STAND_BUILD_S-0}" || exit ;; esac\n',
    "ctest": CTEST,
    "python3": PYTHON,
    "nvidia-smi": 'case "$*" in *compute_cap*) echo 9.0 ;; *) echo "A GPU" ;; esac\n',
    "compute-sanitizer": 'sleep "${STAND_SANITIZER_S-0}" || exit; exit "${STAND_SANITIZER-0}"\n',
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
        for name in ("gpu-check.sh", "gpu-libraries.sh"):
            shutil.copy(ROOT / "tools" / name, self.folder / "tools" / name)
        for name, text in STANDINS.items():
            self.program(self.folder / "bin" / name, text)

    @staticmethod
    def program(path, text):
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)

    def run(self, *arguments, **variables):
        """The exit code, the lines, and the seconds that passed on the stand-ins' clock."""
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "OUT": str(self.folder / "out"),
                       "STAND_LOG": str(self.folder / "log"), "STAND_CLOCK": str(self.folder / "clock"), **{f"STAND_{name}": str(value) for name, value in variables.items()}}
        for name in ("COD_CUDA_CACHE", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
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


def all_is_well(r):
    code, lines, _ = r.run()
    seen = [next(i for i, line in enumerate(lines) if line.startswith(f"== {part}")) for part in PARTS]
    expect(code == 0 and seen == sorted(seen), "the parts' order", code, *lines)
    expect(ended(lines) == ["gpu-check: tests on the device: 3 passed, 0 skipped, 0 failed", "gpu-check: all of it passed", "", *SUMMARY.splitlines()],
           "the table and the goals do not come last", *lines)
    expect(any(line.startswith("gpu-check: commit ") for line in lines), "no commit", *lines)
    kept = {path.name for path in (r.folder / "out").iterdir()}
    expect({"gpu-check.log", "steps.json", "gpu-check.summary.txt", "gpu-check.tests.log", "gpu-check.resources.txt"} <= kept, "not kept", kept)
    expect(r.log("choices") == [f"{r.folder}/build/gpu-check.choices"], "processes do not share their choices", r.log("choices"))
    # 8 minutes: the times have most of them, and nothing has more than there is.
    seconds = [int(re.search(r"--seconds (\d+)", r.log(word)[0])[1]) for word in ("steps", "losses")]
    expect(240 <= seconds[0] <= 480 and 120 <= seconds[1] <= 480, "shares", seconds)
    code, lines, _ = r.run("--part", "2", "--part", "3")
    expect(code == 0 and not r.log("steps") and ended(lines) == ["gpu-check: tests on the device: not run", "gpu-check: all of it passed"],
           "an old table is shown where the times were not taken", *lines)


def failures_are_named(r):
    code, lines, _ = r.run(TEST="***Skipped   0.01 sec")
    expect(code == 1 and "gpu-check: FAILED: tests that were skipped, although there is a GPU" in lines
           and "gpu-check: tests on the device: 2 passed, 1 skipped, 0 failed" in lines, "a skipped test", code, *lines)
    code, lines, _ = r.run(TEST="***Failed    0.01 sec", TESTS=8, LOSSES=1, SANITIZER=9, STEPS=1)
    expect(code == 1 and {"gpu-check: FAILED: tests", "gpu-check: FAILED: losses", "gpu-check: FAILED: times", "gpu-check: FAILED: memcheck on mlp of 4 1 1 16 in bf16",
                          "gpu-check: tests on the device: 2 passed, 0 skipped, 1 failed"} <= set(lines) and lines[-1] == SUMMARY.splitlines()[-1], "failures", code, *lines)


def missing_time_is_told(r):
    code, lines, _ = r.run(STEPS=3)
    expect(code == 3 and "gpu-check: not measured: resnet50-64: no time was left" in lines and "gpu-check: all of it passed, but for what was not measured" in lines,
           "what a script did not measure", code, *lines)
    for name, text in CLOCK.items():
        r.program(r.folder / "bin" / name, text)
    # 40 s: tests hang until their part's share is over, and the sanitizer in its first run.
    code, lines, took = r.run("--minutes", "0.67", "--part", "1", "--part", "4", "--part", "2", TESTS_S=60, SANITIZER_S=600)
    missing = [line.removeprefix("gpu-check: not measured: ") for line in lines if line.startswith("gpu-check: not measured: ")]
    expect(code == 3 and took == 40, f"{took} s", code, *lines)
    expect(missing[:2] == ["test cuda_resources", "memcheck on srresnet of 1 8 8 3 in bf16: cut off"] and len(missing) == 9
           and missing[-1] == "racecheck on mlp of 4 1 1 16 in bf16: no time was left", "what was cut off", *missing)
    expect("gpu-check: tests on the device: 2 passed, 0 skipped, 0 failed" in lines and lines[-1] == SUMMARY.splitlines()[-1], "what was measured", *lines)
    # Nothing is left after the build.
    code, lines, _ = r.run("--minutes", "0.1", "--part", "4", BUILD_S=2)
    expect(code == 3 and "gpu-check: not measured: part 4: no time was left" in lines, "no time", code, *lines)
    # By the machine's clock: a build that hangs is cut off.
    for name in CLOCK:
        (r.folder / "bin" / name).unlink()
    code, lines, _ = r.run("--minutes", "0.1", BUILD_S=600)
    expect(code == 1 and "gpu-check: FAILED: build, which was not done after 0.1 minutes" in lines and "gpu-check: not measured: part 2" in lines, "the build", code, *lines)


def the_commit_is_told(r):
    def git(*words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=r.folder, capture_output=True, text=True, check=True).stdout.strip()

    def told():
        return next(line for line in r.run("--part", "2")[1] if line.startswith("gpu-check: commit "))

    expect(told() == "gpu-check: commit unknown; tools/gpu-check.sh --pack takes it along", "without git", told())
    (r.folder / ".gitignore").write_text("build/\nbin/\nout/\nlog\n")
    (r.folder / "src/a.c").write_text("int a;\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    head = git("rev-parse", "HEAD")
    expect(told() == f"gpu-check: commit {head}", "by git", told())
    packed = r.run("--pack")
    expect(packed[0] == 0, "not packed", packed)
    (r.folder / ".git").rename(r.folder / "bin/git-is-elsewhere")
    expect(told() == f"gpu-check: commit {head}", "from what was packed", told())
    (r.folder / "src/a.c").write_text("int b;\n")
    expect(told() == f"gpu-check: commit {head} with changes since tools/gpu-check.sh --pack", "other sources than those packed", told())
    (r.folder / "bin/git-is-elsewhere").rename(r.folder / ".git")
    expect(told() == f"gpu-check: commit {head} with changes", "changes that git sees", told())
    r.run("--part", "4")
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
    done = bundle_of(r, 60_000_001)
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
    r.program(r.folder / "bin" / "xz", f'[ "$1" = -d ] || set -- -T 2 -0\nexec {shutil.which("xz")} "$@"\n')
    environment = {"PATH": f"{r.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(r.folder), "COD_DATA": str(data), "COD_BUNDLE_PROGRAM": program,
                   **{name: value for name, value in os.environ.items() if name.startswith("OMPI_")}}
    for arguments, told in ((["--bundle"], "MB packed"), (["--whole", "--rehearse"], "gpu-check: all of it passed")):
        done = subprocess.run(["tools/gpu-check.sh", *arguments], cwd=r.folder, env=environment, capture_output=True, text=True)
        expect(done.returncode == 0 and told in done.stdout, f"{arguments}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    if len(sys.argv) > 1:  # the command that is packed
        with tempfile.TemporaryDirectory() as name:
            a_real_bundle_is_rehearsed(Rehearsal(pathlib.Path(name).resolve()), os.path.abspath(sys.argv[1]))
        sys.exit(0)
    for case in (all_is_well, failures_are_named, missing_time_is_told, the_commit_is_told, libraries_of_wheels_are_found, bundles_have_limits):
        with tempfile.TemporaryDirectory() as name:
            case(Rehearsal(pathlib.Path(name).resolve()))
