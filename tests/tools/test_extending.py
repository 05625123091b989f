#!/usr/bin/env python3
"""The worked patches of docs/extending: each applies to a copy of the sources, compiles, and does what the page says.

usage: test_extending.py BUILD op|model|strategy|recipe|backend|transport|metric

Compiles with the commands of BUILD/compile_commands.json, each module seeing its own headers only, as in the build. A patch
that registers something is linked with the objects of BUILD, but for those of sources that include a changed header, into
a program of its own, which is then asked.
"""
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from train_support import CONFIG, check, png, read_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A kind that no case handles is a warning, which is an error: all that list kinds are compiled with the op.
LISTS_KINDS = re.compile(r"\bcase COD_(NODE|OP)_|\[COD_OP_KIND_COUNT\]")


def run(command, folder, why, shell=False):
    result = subprocess.run(command, cwd=folder, shell=shell, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(result.returncode == 0, f"{why}: {command if shell else shlex.join(command)}\n{result.stdout}")
    return result.stdout


class Copy:
    """The sources with a patch, and what the build would compile of them."""

    def __init__(self, folder, build, patch):
        self.folder, self.build, self.patch = folder, build, patch
        for name in ("src", "tools", "tests", "cmake"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("golden", "corpus"))
        (folder / "docs").mkdir()
        shutil.copy(ROOT / "docs/architecture.md", folder / "docs")  # its table has all modules
        known = {path.name for path in (folder / "src").iterdir()}
        run(["git", "apply", "-p1", str(patch)], folder, "the patch does not apply; make it anew from the tree as it is")
        run([sys.executable, str(ROOT / "tools/lint/lint.py"), "--no-format", str(folder)], folder, "the tree is not clean with the patch")
        self.new_modules = [path.name for path in (folder / "src").iterdir() if path.name not in known]
        for module in (folder / "src").iterdir():
            (folder / "include" / module.name).mkdir(parents=True)
            (folder / "include" / module.name / module.name).symlink_to(module)
        self.home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]
        self.commands = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            self.commands.setdefault(os.path.relpath(entry["file"], self.home), entry)

    def changed(self):
        return [name for name in re.findall(r"^\+\+\+ b/(.*)$", self.patch.read_text(), re.M) if name.endswith(".c")]

    def affected(self):
        """Changed sources, and those of the command that include a changed header."""
        headers = set(re.findall(r"^--- a/(.*\.h)$", self.patch.read_text(), re.M))
        names, home = self.changed(), os.path.realpath(self.home)
        for entry in run(["ninja", "-t", "deps"], self.build, "what includes what is not known").split("\n\n"):
            paths = [os.path.relpath(os.path.realpath(self.build / line.strip()), home)
                     for line in entry.splitlines()[1:] if line.endswith((".c", ".h"))]
            source = next((path for path in paths if path in self.commands and path.startswith(("src/", "tools/"))), None)
            if source is not None and source not in names and headers.intersection(paths):
                names.append(source)
        return names

    def neighbour(self, name):
        """A source of the build in the same folder, or for a new module, which sees core alone, one of core."""
        folders = os.path.dirname(name), "src/core"
        return next(other for folder in folders for other in sorted(self.commands) if os.path.dirname(other) == folder)

    def command(self, name):
        """The build's command for a source, or of a new one that of its neighbour, for the copy: (words, object in the build)."""
        known = name if name in self.commands else self.neighbour(name)
        words = shlex.split(self.commands[known]["command"])
        made = words[words.index("-o") + 1]
        at = words.index("-o")
        del words[at:at + 2]
        words = words[:words.index("-c")]
        includes = {f"-I{self.build}/include/": f"-I{self.folder}/include/", f"-I{self.home}": f"-I{self.folder}"}
        for i, word in enumerate(words):
            for old, new in includes.items():
                if word.startswith(old):
                    words[i] = new + word[len(old):]
                    break
        seen = self.new_modules if name.startswith("tools/") else [m for m in self.new_modules if name.startswith(f"src/{m}/")]
        words += [f"-I{self.folder}/include/{module}" for module in seen]
        return [*words, str(self.folder / name)], made if known == name else None

    def checked(self, names):
        """Compiles without making objects."""
        for name in names:
            run([*self.command(name)[0], "-fsyntax-only"], self.build, f"{name} does not compile with the patch")

    def program(self):
        """The command `codistill` with the patch: changed objects come before the libraries that hold the former ones."""
        link = run(["ninja", "-t", "commands", "codistill"], self.build, "no commands").splitlines()[-1]
        first = []
        for name in self.affected():
            if name.startswith("tests/"):
                self.checked([name])
                continue
            words, made = self.command(name)
            target = str(self.folder / name) + ".o"
            run([*words, "-O0", "-c", "-o", target], self.build, f"{name} does not compile with the patch")
            if name.startswith("tools/") and made is not None and f" {made} " in link:
                link = link.replace(f" {made} ", f" {target} ")
            else:
                first.append(target)
        result = self.folder / "codistill"
        check(" -o codistill " in link and "CMakeFiles/codistill.dir/" in link, f"no command that links codistill: {link}")
        link = link.replace(" -o codistill ", f" {' '.join(first)} -o {result} ")
        run(link, self.build, "it does not link", shell=True)
        return result


def config(copy, model=None):
    """A tiny run, whose model may be another one."""
    path = copy.folder / "t.yaml"
    path.write_text(re.sub("^model: .*$", f"model: {model}", CONFIG, flags=re.M) if model else CONFIG)
    return str(path)


def train(copy, program, *overrides, model=None):
    return run([str(program), "train", config(copy, model), f"output={copy.folder}/runs", "train.steps=4", "eval.every=0", "checkpoint.every=0", "log.every=1",
                "log.tensorboard=false", "train.deterministic=true", *overrides], copy.folder, "it does not train")


def refused(copy, program, *overrides):
    """What the program says when it cannot train."""
    result = subprocess.run([str(program), "train", config(copy), "name=refused", f"output={copy.folder}/runs", *overrides],
                            cwd=copy.folder, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    check(result.returncode != 0, f"it trains: {overrides}")
    return result.stderr


def op(copy):
    listing = [str(path.relative_to(copy.folder)) for folder in ("src/core", "src/nn", "src/ref", "src/cpu", "src/infer", "src/train")
               for path in sorted((copy.folder / folder).rglob("*.c")) if LISTS_KINDS.search(path.read_text())]
    check(len(listing) > 5 and "src/nn/ops/rules.c" in listing and "src/infer/onnx_node.c" in listing, f"these list kinds: {listing}")
    copy.checked(sorted({*listing, *copy.changed()}))
    # The compiler names a place that was forgotten.
    path = copy.folder / "src/nn/ops/rules.c"
    path.write_text(re.sub(r"    case COD_NODE_FLIP:\n.*?return [^;]*;\n", "", path.read_text(), flags=re.S))
    result = subprocess.run([*copy.command("src/nn/ops/rules.c")[0], "-fsyntax-only"], cwd=copy.build, text=True, stderr=subprocess.PIPE)
    check(result.returncode != 0 and "COD_NODE_FLIP" in result.stderr, f"a kind without a case compiles: {result.stderr}")


def model(copy):
    program = copy.program()
    check("\nespcn: " in run([str(program), "models"], copy.folder, "models"), "the model is not listed")
    train(copy, program, model="{name: espcn, num_feat: 4}")
    tensors = read_safetensors(copy.folder / "runs/t/final.safetensors")
    check({name for name in tensors if name.endswith("weight")} == {"conv1.weight", "conv2.weight", "conv3.weight"}, f"{list(tensors)}")


def strategy(copy):
    program = copy.program()
    overrides = ["train.strategy=one_shot", "cluster.groups=2", "data.placement=disjoint"]
    plan = run([str(program), "plan", config(copy), *overrides, "train.steps=4"], copy.folder, "plan")
    check("weights averaged once, after the last step" in plan, plan)
    train(copy, program, *overrides, "train.steps=3", "checkpoint.every=2", "checkpoint.keep=9")
    weights = {step: [read_safetensors(copy.folder / f"runs/t/checkpoints/step-{step:09d}/group-{group}.safetensors")["values"] for group in (0, 1)]
               for step in (2, 3)}
    check(weights[2][0] != weights[2][1], "the groups are equal before the last step")
    check(weights[3][0] == weights[3][1], "the groups are not equal after the last step")


def recipe(copy):
    program = copy.program()
    train(copy, program, "train.recipe=smooth", "smooth.variation_weight=0.5")
    lines = [json.loads(line) for line in (copy.folder / "runs/t/metrics.0.jsonl").read_text().splitlines()]
    check(len(lines) == 4 and all(line["loss.variation"] > 0 for line in lines[2:]), f"{lines}")  # losses are agreed on two steps later
    result = subprocess.run([str(program), "train", config(copy, "{name: mlp}"), "train.recipe=smooth"],
                            cwd=copy.folder, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    check(result.returncode != 0 and "mlp is a classifier" in result.stderr, f"{result.stderr}")


def backend(copy):
    program = copy.program()
    check("\nbackend finite: " in run([str(program), "--version"], copy.folder, "--version"), "the backend is not listed")
    weights = {}
    for name in ("cpu", "finite"):
        train(copy, program, f"name={name}", f"train.backend={name}")
        weights[name] = (copy.folder / f"runs/{name}/final.safetensors").read_bytes()
    check(weights["cpu"] == weights["finite"], "finite does not train to the bits of cpu")
    broken = refused(copy, program, "train.backend=finite", "train.rate=1000", "train.optimiser=sgd", "train.steps=99")
    check(re.search(r"codistill: [a-z0-9_]+ '[^']+': output \d has (NaN|infinity) in channel \d+ of pixel \d+\n", broken), broken)


def transport(copy):
    program = copy.program()
    overrides = ["train.strategy=codistill", "cluster.groups=2", "exchange.period=4", "exchange.lag_steps=2", "train.steps=7", "distill.burn_in=5"]
    weights = {}
    for name in ("rma", "delayed"):
        train(copy, program, f"name={name}", *overrides, f"exchange.transport={name}", "exchange.delay_s=0.7")
        weights[name] = (copy.folder / f"runs/{name}/final.safetensors").read_bytes()
    check(weights["rma"] == weights["delayed"], "a delay changes what a deterministic run computes")
    lines = [json.loads(line) for line in (copy.folder / "runs/delayed/metrics.0.jsonl").read_text().splitlines()]
    check(lines[-1]["peers"][0]["pulled"] == 1, f"nothing was pulled: {lines[-1]}")
    waited = lines[6]["trained_s"] - lines[4]["trained_s"]
    check(waited >= 0.7, f"the version of step 4, due at step 6, came after {waited} s")
    told = refused(copy, program, *overrides, "exchange.transport=delayed", "exchange.delay_s=10", "exchange.pull_timeout_s=10")
    check("exchange.delay_s: a pull is abandoned after exchange.pull_timeout_s, 10" in told, told)


def metric(copy):
    program = copy.program()
    (copy.folder / "photos").mkdir()
    for seed in (1, 2):
        (copy.folder / f"photos/{seed}.png").write_bytes(png(64, 48, seed))
    measure = [str(program), "eval", "bicubic", "--data", "photos", "--json", "--metrics"]
    said = json.loads(run([*measure, "psnr,mae"], copy.folder, "it does not measure"))
    for image in said["images"]:  # a mean error is at most the root of the mean squared one, and no single error is above 219
        square = 255 ** 2 / 10 ** (image["psnr_y"] / 10)
        check(square / 219 <= image["mae_y"] <= math.sqrt(square), f"{image}")
    check(abs(said["mean"]["mae_y"] - sum(image["mae_y"] for image in said["images"]) / 2) < 1e-9, f"{said['mean']}")
    same = json.loads(run([*measure, "mae", "--scale", "1"], copy.folder, "it does not measure"))
    check(same["mean"] == {"mae_y": 0}, f"equal pictures: {same['mean']}")
    train(copy, program, "eval.every=2", "eval.best=mae")
    summary = json.loads((copy.folder / "runs/t/summary.json").read_text())
    check(summary["figure"] == "mae_y" and 0 < summary["mae_y"] < 219 and summary["baseline"] == "bicubic_mae_y", f"{summary}")
    told = refused(copy, program, "eval.metrics=psnr, mse")
    check("unknown metric 'mse'; known are psnr, ssim, niqe, pi, lpips and mae" in told, told)


def main():
    build, case = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(pathlib.Path(folder).resolve(), build, ROOT / f"docs/extending/{case}.diff")
        {"op": op, "model": model, "strategy": strategy, "recipe": recipe, "backend": backend, "transport": transport, "metric": metric}[case](copy)


if __name__ == "__main__":
    main()
