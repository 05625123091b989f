#!/usr/bin/env python3
"""What `cmake --install` and `cpack` make of a tree: programs, pages, completions, and libraries that others build against.

usage: test_install.py BUILD_FOLDER [CASE ...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from train_support import CONFIG
from test_bad_inputs import png

BUILD = pathlib.Path(sys.argv[1]).absolute()


def run(*command, cwd=None, code=0, **variables):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == code, f"{command}: {done.returncode} instead of {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def installed(folder):
    prefix = folder / "prefix"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def uses(folder, programs, model):
    """The examples, wherever they were built: they train, upscale, publish and pull."""
    (folder / "t.yaml").write_text(CONFIG)
    (folder / "low.png").write_bytes(png(12, 10))
    said = run(programs / "train", "t.yaml", "train.steps=10", "log.every=5", "name=example", cwd=folder)
    assert "group 0, step 10 of 10: loss" in said and (folder / "runs/example/final.safetensors").exists(), said
    assert "there is no strategy 'gosip'" in run(programs / "train", "t.yaml", "train.strategy=gosip", cwd=folder, code=1)
    said = run(programs / "upscale", model or folder / "runs/example/final.safetensors", "low.png", "high.png", cwd=folder)
    scale = 4 if "48x40" in said else 2
    assert f"high.png: {12 * scale}x{10 * scale}" in said, said
    groups = [subprocess.Popen([programs / "exchange", str(g), "3", "met"], cwd=folder, stdout=subprocess.PIPE, text=True) for g in range(3)]
    together = [float(re.fullmatch(rf"group {g}: alone its weights would be {g}, together they are ([\d.]+)\n", group.communicate()[0])[1])
                for g, group in enumerate(groups)]
    assert 0 < together[0] and together[2] < 2, together
    assert "setting group: 'three' is not a whole number" in run(programs / "exchange", "three", "3", "met", cwd=folder, code=1)


def tree(folder):
    """What is where; nothing private is installed, and nothing is linked into the build folder."""
    prefix = installed(folder)
    for path in ("bin/codistill", "include/codistill.h", "include/codistill/train/train.h", "include/codistill/infer/upscaler.h", "share/codistill/models/README.md",
                 "share/bash-completion/completions/codistill", "share/man/man5/codistill.5", "share/doc/codistill/docs/troubleshooting.md"):
        assert (prefix / path).is_file(), f"there is no {path}"
    said = run(prefix / "share/codistill/tools/get-data.sh", cwd=folder)
    assert "photos " in said and f"{prefix}/share/codistill/tools/get-data.sh NAME brings one." in said, said
    names = [path.name for path in (prefix / "include").rglob("*.h")]
    assert len(names) > 100 and not [name for name in names if name.endswith("_internal.h")], names
    assert "codistill 0." in run(prefix / "bin/codistill", "--version", cwd=folder)
    for path in [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc")]:
        assert str(BUILD) not in path.read_text() and str(BUILD.parent.parent / "src") not in path.read_text(), f"{path} names the build's folder"


def pages(folder):
    """A page for each command and bench, which says what its help says; the configuration's has each option."""
    program, prefix = BUILD / "codistill", installed(folder)
    man = prefix / "share/man"
    commands = re.findall(r"^  (\w+)\t", run(program, "--help", "--unwrapped").split("\noptions:")[0], re.MULTILINE)
    benches = re.findall(r"^  (\w+)\t", run(program, "bench", "--help", "--unwrapped"), re.MULTILINE)
    assert len(commands) > 12 and len(benches) > 8
    for name in [*commands, *(f"bench-{name}" for name in benches)]:
        text = (man / f"man1/codistill-{name}.1").read_text()
        words = name.split("-")
        options = set(re.findall(r"--[\w-]+", run(program, *words, "--help")))
        missing = [option for option in options if option.replace("-", "\\-") not in text]
        assert missing == [] and f".TH CODISTILL-{name.upper()} 1" in text, f"{name}: {missing}"
    keys = re.findall(r"^  (\S+): .*\(", run(program, "config", "--unwrapped"), re.MULTILINE)
    text = (man / "man5/codistill.5").read_text()
    assert len(keys) > 100 and [key for key in keys if f".BR {key} " not in text] == []
    assert '.BR nonce " (default: \\(dq\\(dq; a text)"' in text, "a quote ends the argument of a macro"
    if shutil.which("man"):
        for page in man.rglob("*.[15]"):
            said = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page, MANWIDTH="200", LC_ALL="C.UTF-8", MANROFFSEQ="")
            assert "warning" not in said.split("\n")[0], f"{page}: {said[:500]}"


def completions(folder):
    """The scripts lie where the shells look for them, and zsh finds its function there."""
    share = installed(folder) / "share"
    places = {"bash": ["bash-completion/completions/codistill"], "zsh": ["zsh/site-functions/_codistill", "zsh/vendor-completions/_codistill"],
              "fish": ["fish/vendor_completions.d/codistill.fish"]}
    for shell, paths in places.items():
        script = run(BUILD / "codistill", "completion", shell)
        for path in paths:
            assert len(script) > 200 and (share / path).read_text() == script, path
    if shutil.which("zsh"):
        said = run("zsh", "-f", "-c", f"fpath=({share}/zsh/site-functions $fpath); autoload -Uz compinit && compinit -u -D; print $_comps[codistill]")
        assert said == "_codistill\n", said


def cmake(folder):
    prefix = installed(folder)
    run("cmake", "-S", prefix / "share/doc/codistill/examples", "-B", folder / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "b", "--parallel", "2")
    uses(folder, folder / "b", None)


def pkg_config(folder):
    prefix = installed(folder)
    examples = folder / "examples"
    shutil.copytree(prefix / "share/doc/codistill/examples", examples)
    run("make", "-j2", f"PKG_CONFIG_PATH={next(prefix.rglob('codistill.pc')).parent}", cwd=examples)
    uses(folder, examples, "bicubic")


def library(folder):
    """The shared library by itself: C and C++, found in both ways, without MPI, and with no more symbols than its header has."""
    prefix = installed(folder)
    pc = next(prefix.rglob("libcodistill.pc")).parent
    program = (prefix / "share/doc/codistill/examples/exchange.c").read_text()
    (folder / "plain.cpp").write_text("""#include <codistill.h>
        int main() { codistill *peers = nullptr; int refused = codistill_open(nullptr, 0, nullptr, 0, &peers); codistill_close(peers); return refused != CODISTILL_ERR_ARGUMENT; }""")
    (folder / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.25)
        project(plain LANGUAGES CXX)
        find_package(libcodistill REQUIRED)
        add_executable(plain plain.cpp)
        target_link_libraries(plain PRIVATE libcodistill::libcodistill)""")
    run("cmake", "-S", folder, "-B", folder / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "b")
    run(folder / "b/plain")
    flags = run("pkg-config", "--cflags", "--libs", "libcodistill", PKG_CONFIG_PATH=str(pc)).split()
    run("g++", "-x", "c++", folder / "plain.cpp", "-x", "none", *flags, "-o", folder / "by-pc")
    (shared,) = {path.resolve() for path in prefix.rglob("libcodistill.so*")}
    run(folder / "by-pc", LD_LIBRARY_PATH=str(shared.parent))
    assert "libmpi" not in run("ldd", folder / "b/plain")
    exported = set(re.findall(r" T (\w+)", run("nm", "-D", "--defined-only", shared)))
    declared = set(re.findall(r"\b(codistill_\w+)\(", re.sub(r"/\*.*?\*/", "", (prefix / "include/codistill.h").read_text(), flags=re.DOTALL)))
    assert exported == declared and len(declared) == 14, exported ^ declared
    assert len(program.splitlines()) <= 40


def package(folder):
    """The .deb has what is installed and says what it depends on; what it holds runs from wherever it is unpacked."""
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder / "p")
    deb, = (folder / "p").glob("codistill_*.deb")
    fields = run("dpkg-deb", "--field", deb)
    for part in ("Package: codistill", "Section: science", "openmpi-bin", "libyaml-0-2", "libdnnl"):
        assert part in fields, f"no {part}: {fields}"
    run("dpkg-deb", "-x", deb, folder / "x")
    (folder / "low.png").write_bytes(png(12, 10))
    run(folder / "x/usr/bin/codistill", "upscale", "bicubic", "low.png", "-o", "high.png", cwd=folder)
    assert (folder / "high.png").exists() and (folder / "x/usr/share/man/man1/codistill-train.1").exists()


CASES = {"tree": tree, "pages": pages, "completions": completions, "cmake": cmake, "pkg-config": pkg_config, "library": library, "package": package}

if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as place:
            CASES[name](pathlib.Path(place))
        print(f"ok    {name}", flush=True)
