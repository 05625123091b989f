#!/usr/bin/env python3
"""tools/mutants.sh in a small project: it finds one fault, one survives, one is stale, and a second run goes on where the first stopped.

usage: test_mutants.py
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES C)
enable_testing()
add_executable(small src/core/small.c src/core/mutant.c)
target_include_directories(small PRIVATE src)
target_compile_definitions(small PRIVATE _GNU_SOURCE)
add_custom_target(cod_tests DEPENDS small)
foreach(number 3 4)
    add_test(NAME sum_${number} COMMAND small ${number})
endforeach()
set_property(TEST sum_4 PROPERTY LABELS full)
add_test(NAME broken COMMAND small 9)
""",
    "src/core/small.c": """#include <stdlib.h>

static int unused;

static void forget(void)
{
    unused = 3;
}

int main(int argc, char **argv)
{
    const int number = atoi(argv[argc - 1]);
    int sum = 0;
    for (int i = 0; i < number; i++)
        sum += i;
    forget();
    if (number == 4)
        return sum != 6;
    return sum != 3;
}
""",
    "tests/mutants.txt": """# number file: line  =>  mutated line
1 src/core/small.c: for (int i = 0; i < number; i++)  =>  for (int i = 0; i + 1 < number; i++)
2 src/core/small.c: forget();  =>  ;
3 src/core/small.c: if (number == 5)  =>  if (number != 5)
4 src/core/small.c: return sum != 6;  =>  return sum != 7;
""",
}


class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "tools").mkdir()
        for name in ("mutants.sh", "mutants.py", "mutants_list.py"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        shutil.copytree(ROOT / "tests/support/mutants", self.root / "tests/support/mutants")

    def run_tool(self, *arguments, code=0):
        done = subprocess.run([self.root / "tools/mutants.sh", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_finds_and_goes_on(self):
        output = self.run_tool("--jobs", "1", "--mutants", "1,3-4")
        for part in ("stale, for their lines are gone or not unique: 3", "broken fails without a mutant: left out",
                     "1 in src/core/small.c found by sum_3", "mutant 2/2: 4 in src/core/small.c found by sum_4"):
            self.assertIn(part, output)
        output = self.run_tool("--jobs", "1")
        self.assertIn("mutant 1/1: 2 in src/core/small.c SURVIVES 2 tests", output)
        self.assertNotIn("test 1/", output)
        output = self.run_tool("--table")
        self.assertIn("| core | 4 | 3 | 1 | 2 |", output)
        self.assertIn("- 2 `src/core/small.c:16`: `forget();` as `;`", output)
        self.assertIn("Left out, because they fail without a mutant: broken", output)
        self.assertNotIn("mutant ", self.run_tool("--jobs", "1").replace("mutants", ""))  # nothing is left to do
        text = (self.root / "tests/mutants.txt").read_text().replace("forget();  =>  ;", "sum += i;  =>  sum += i + 1;")
        (self.root / "tests/mutants.txt").write_text(text)
        self.assertIn("mutant 1/1: 2 in src/core/small.c found by sum_3", self.run_tool("--jobs", "1"))  # it alone anew

    def test_chooses(self):
        self.run_tool("--choose", "--least", "2")
        chosen = (self.root / "tests/mutants.txt").read_text()
        self.assertIn(" src/core/small.c: ", chosen)
        self.run_tool("--choose", "--least", "2")
        self.assertEqual((self.root / "tests/mutants.txt").read_text(), chosen)

    def test_refuses(self):
        for arguments, code, words in ((["--frobnicate"], 2, "--frobnicate"), (["--jobs", "0"], 2, "--jobs needs a number from 1 up"),
                                       (["--mutants", "1-x"], 1, "--mutants needs numbers such as 1-40,77, not '1-x'"),
                                       (["--tests", "("], 2, "--tests needs a regular expression"),
                                       (["--table"], 1, "there are no results yet")):
            self.assertIn(words, self.run_tool(*arguments, code=code))
        with open(self.root / "tests/mutants.txt", "a") as file:
            file.write("4 src/core/small.c\n")
        self.assertIn("with a number from 1 to 4095", self.run_tool(code=1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
