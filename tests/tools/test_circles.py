#!/usr/bin/env python3
"""tools/lint/circles.py on modules that are compiled here: files that use each other are found, unless that is allowed.

usage: test_circles.py COMPILER
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CIRCLES = pathlib.Path(__file__).resolve().parents[2] / "tools/lint/circles.py"
COMPILER = "cc"

# Of two modules: train uses nn and calls low.c with a callback, which is no circle; static functions of one name are not the same.
CLEAN = {
    "nn/low.c": "static int twice(int a) { return 2 * a; }\nint cod_low(int (*back)(int)) { return back(twice(1)); }\n",
    "nn/high.c": "int cod_low(int (*back)(int));\nstatic int twice(int a) { return 3 * a; }\nint cod_high(void) { return cod_low(twice); }\n",
    "train/step.c": "int cod_high(void);\nint cod_step(void) { return cod_high(); }\n",
}
CIRCLE = {
    "train/a.c": "extern int cod_table[];\nint cod_a(void) { return cod_table[0]; }\n",
    "train/b.c": "int cod_c(void);\nint cod_table[2];\nint cod_b(void) { return cod_c(); }\n",
    "train/parts/c.c": "int cod_a(void);\nint cod_c(void) { return cod_a(); }\n",
    "train/d.c": "int cod_a(void);\nint cod_d(void) { return cod_a(); }\n", # above them
}


class CirclesTest(unittest.TestCase):
    def setUp(self):
        self.build = pathlib.Path(tempfile.mkdtemp(prefix="cod_circles_"))
        self.addCleanup(shutil.rmtree, self.build)

    def compile(self, sources):
        commands = []
        for name, text in sources.items():
            source, target = self.build / name, f"CMakeFiles/cod_{name.split('/')[0]}.dir/src/{name}.o"
            for path in (source, self.build / target):
                path.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            command = [COMPILER, "-o", target, "-c", str(source)]
            subprocess.run(command, cwd=self.build, check=True)
            commands.append({"directory": str(self.build), "file": str(source), "command": " ".join(command)})
        (self.build / "compile_commands.json").write_text(json.dumps(commands))

    def circles(self, allowed=""):
        path = self.build / "allowed.txt"
        path.write_text(allowed)
        return subprocess.run([sys.executable, str(CIRCLES), "--allowed", str(path), str(self.build)], capture_output=True, text=True)

    def check(self, result, code, *lines):
        self.assertEqual((result.returncode, result.stdout.splitlines()), (code, list(lines)), result.stderr)

    def test_files_in_an_order_pass(self):
        self.compile(CLEAN)
        self.check(self.circles(), 0, "circles: clean, 2 modules")

    def test_a_circle_is_found_with_what_closes_it(self):
        self.compile({**CLEAN, **CIRCLE})
        self.check(self.circles(), 1, "train: a.c b.c parts/c.c use each other", "    a.c -> b.c: cod_table", "    b.c -> parts/c.c: cod_c",
                   "    parts/c.c -> a.c: cod_a", "circles: 1 findings in 2 modules")

    def test_an_allowed_circle_passes(self):
        self.compile({**CLEAN, **CIRCLE})
        self.check(self.circles("# why\n\ntrain: b.c a.c parts/c.c: planted\n"), 0, "circles: clean, 2 modules")

    def test_a_line_must_fit_its_circle(self):
        self.compile(CLEAN)
        for line in ("train: a.c b.c: gone", "nn: low.c high.c: no circle", "gan: a.c b.c: no such module"):
            with self.subTest(line=line):
                result = self.circles(line + "\n")
                self.assertEqual(result.returncode, 1)
                self.assertIn("allowed.txt:1: ", result.stdout)
        self.compile({**CLEAN, **CIRCLE})
        self.assertIn("circles: 2 findings", self.circles("train: a.c b.c: a file is missing\n").stdout)

    def test_a_line_needs_a_reason(self):
        self.compile(CLEAN)
        for line in ("train: a.c b.c", "train: a.c b.c:", "a.c b.c"):
            with self.subTest(line=line):
                self.assertIn("allowed.txt:1: not of the form", self.circles(line + "\n").stderr)

    def test_modules_that_are_not_built_are_said(self):
        self.compile(CLEAN)
        next(self.build.rglob("high.c.o")).unlink()
        result = self.circles()
        self.assertEqual(result.returncode, 2)
        self.assertIn("lacks 1 object files", result.stderr)


if __name__ == "__main__":
    COMPILER = sys.argv.pop(1)
    unittest.main()
