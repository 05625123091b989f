#!/usr/bin/env python3
"""The Python package: its own tests against the library of a tree, and a wheel that works without this folder.

usage: test_package.py tests|wheel LIBRARY; exit 77 where NumPy, pytest or scikit-build-core are not
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
DEBIANS = "/usr/bin/python3"  # which tools/setup.sh gives NumPy and pytest; another Python may stand before it
TOP = pathlib.Path(__file__).resolve().parents[2]


def need(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing and sys.executable != DEBIANS and os.path.exists(DEBIANS):
        os.execv(DEBIANS, [DEBIANS, *sys.argv])
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}")
        sys.exit(77)


def run(*command, cwd=None, **variables):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def pytest(where, **variables):
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "codistill", cwd=where, PYTHONDONTWRITEBYTECODE="1",
               OMP_NUM_THREADS="1", **variables)
    assert int(re.search(r"(\d+) passed", said)[1]) >= 18, said
    print(said.strip().splitlines()[-1])


def tests(library):
    need("numpy", "pytest")
    with tempfile.TemporaryDirectory() as place:
        pytest(place, PYTHONPATH=str(TOP / "python"), CODISTILL_LIBRARY=library)


def wheel(_):
    need("numpy", "pytest", "scikit_build_core", "pip")
    with tempfile.TemporaryDirectory() as place:
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", place, f"-Cbuild-dir={place}/build", TOP)
        (made,) = pathlib.Path(place).glob("codistill-*-py3-none-*.whl")
        names = zipfile.ZipFile(made).namelist()
        assert "codistill/lib/libcodistill.so" in names and "codistill/tests/test_numpy.py" in names, names
        zipfile.ZipFile(made).extractall(f"{place}/unpacked")
        assert "libmpi" not in run("ldd", f"{place}/unpacked/codistill/lib/libcodistill.so")
        pytest(place, PYTHONPATH=f"{place}/unpacked")


if __name__ == "__main__":
    {"tests": tests, "wheel": wheel}[sys.argv[1]](*sys.argv[2:])
