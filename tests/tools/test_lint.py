#!/usr/bin/env python3
"""The lint against planted violations: a clean tree passes, and each rule finds its own violation and nothing else."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINT = ROOT / "tools/lint/lint.py"

HEADER = "/**\n * @file\n * Adds.\n */\nint cod_add(int a, int b);\n"
SOURCE = '#include "core/add.h"\n\nint cod_add(int a, int b)\n{\n    return a + b; /* no printf("x") here */\n}\n'
MODULES = "cod_module(core LEVEL 0)\ncod_module(nn LEVEL 1 LINKS cod_core)\ncod_module(cpu LEVEL 1 LINKS cod_core)\n" \
          "cod_module(comm LEVEL 1 LINKS cod_core)\ncod_module(train LEVEL 3 LINKS cod_core cod_nn cod_comm)\n"
TABLE = "| level | module |\n| --- | --- |\n| 0 | `core` | status |\n| 1 | `nn` | graph |\n| 1 | `cpu` | |\n| 1 | `comm` | |\n" \
        "| 3 | `train` | |\n| 4 | `tools` | |\n"
CLEAN = {
    "cmake/modules.cmake": MODULES,
    "docs/architecture.md": TABLE,
    "src/core/add.h": HEADER,
    "src/core/add.c": SOURCE,
    "src/core/core_internal.h": "int cod_private(void);\n",
    "src/nn/graph.h": HEADER,
    "src/comm/mpi.c": '#include "core/add.h"\n\n#include <mpi.h>\n\nint cod_rank(void)\n{\n    return cod_add(MPI_SUCCESS, 0);\n}\n',
    "src/train/step.c": '#include <stdio.h>\n\n#include "nn/graph.h"\n\nvoid cod_note(FILE *file)\n{\n'
                        '    fprintf(file, "to stderr");\n}\n',
    "tools/main.c": '#include <mpi.h>\n#include <stdio.h>\n\n#ifdef COD_HAVE_CUDA\n#endif\n\nint main(void)\n{\n    return printf("tools may print\\n") < 0;\n}\n',
    "tests/nn/test_graph.c": "#include <mpi.h>\n#include <yaml.h>\n\nint cod_end(int status)\n{\n    if (status == COD_OK && fclose(file) != 0)\n"
                             "        status = 1; /* no COD_TRY_GOTO */\n    return status;\n}\n",
    "tools/lint/long_files.txt": "tools/long.c: a table made by a script\n",
    "tools/long.c": "int cod_table;\n" * 601,
}


def body(line):
    return f"void cod_f(void)\n{{\n    {line}\n}}\n"


# (rule, file, content): what is planted, and the rule that must find it there.
PLANTED = [
    ("raw-text", "tools/cmd_a.c", body('printf("%s: done\\n", name);')),
    ("raw-text", "tools/cmd_a.c", body('fprintf(stderr, "%d %-*s\\n", 1, width, name);')),
    ("raw-text", "tools/cmd_a.c", body("fputs(name, stdout);")),
    ("raw-text", "tools/cmd_a.c", body("vfprintf(stderr, fmt, args);")),
    ("third-party", "src/train/a.c", "#include <mpi.h>\n"),
    ("third-party", "tools/cmd_train.c", "#include <mpi.h>\n"),
    ("third-party", "src/nn/a.c", "#include <dnnl.h>\n"),
    ("third-party", "src/nn/a.c", "#include <oneapi/dnnl/dnnl.h>\n"),
    ("third-party", "src/nn/a.c", "#include <cuda_runtime.h>\n"),
    ("third-party", "src/nn/a.c", "#include <cudnn.h>\n"),
    ("third-party", "src/nn/a.c", "#include <cublas_v2.h>\n"),
    ("third-party", "src/comm/a.c", "#include <nccl.h>\n"),
    ("third-party", "src/train/a.c", "#include <yaml.h>\n"),
    ("third-party", "src/train/a.c", "#include <lz4.h>\n"),
    ("third-party", "src/train/a.c", "#include <zstd.h>\n"),
    ("third-party", "src/train/a.c", "#include <png.h>\n"),
    ("third-party", "src/train/a.c", "#include <jpeglib.h>\n"),
    ("third-party", "src/train/a.c", "#include <turbojpeg.h>\n"),
    ("third-party", "src/train/a.c", "#include <xxhash.h>\n"),
    ("third-party", "src/train/a.c", "#include <cJSON.h>\n"),
    ("third-party", "src/train/a.c", "#include <cjson/cJSON.h>\n"),
    ("third-party", "src/train/a.c", "#include <cmocka.h>\n"),
    ("third-party", "tools/a.c", "#include <librsvg/rsvg.h>\n"),
    ("third-party", "src/report/page.c", "#include <cairo.h>\n"),
    ("third-party", "src/report/page.c", "#include <glib.h>\n"),
    ("upward-include", "src/core/a.c", '#include "nn/graph.h"\n'),
    ("upward-include", "src/nn/a.c", '#include "train/step.h"\n'),
    ("upward-include", "src/nn/a.c", '#include "comm/group.h"\n'),
    ("upward-include", "src/nn/a.c", "#include <comm/group.h>\n"),
    ("upward-include", "src/nn/a.c", '#include "tools/main.h"\n'),
    ("upward-include", "src/nn/a.c", '#include "../comm/group.h"\n'),
    ("private-header", "src/nn/a.c", '#include "core/core_internal.h"\n'),
    ("private-header", "tools/cmd_train.c", '#include "core/core_internal.h"\n'),
    ("private-header", "tools/bench/step.c", '#include "core/core_internal.h"\n'),
    ("levels", "cmake/modules.cmake", MODULES + "cod_module(gan LEVEL 1 LINKS cod_core cod_train)\n"), # up
    ("levels", "cmake/modules.cmake", MODULES + "cod_module(gan LEVEL 3 LINKS cod_core cod_train)\n"), # aside
    ("levels", "cmake/modules.cmake", MODULES + "cod_module(gan LEVEL 4 LINKS cod_core cod_unknown)\n"),
    ("levels", "cmake/modules.cmake", MODULES + "cod_module(gan LINKS cod_core)\n"),
    ("levels", "docs/architecture.md", TABLE.replace("| 3 | `train`", "| 2 | `train`")),
    ("levels", "docs/architecture.md", TABLE.replace("| 1 | `comm` | |\n", "")),
    ("levels", "docs/architecture.md", TABLE + "| 1 | `nn` | again |\n"),
    ("levels", "docs/architecture.md", TABLE.replace("| 4 | `tools`", "| 3 | `tools`")),
    ("build-switch", "tools/devices.c", "#ifdef COD_HAVE_CUDA\nint cod_with;\n#endif\n"),
    ("build-switch", "src/train/a.h", HEADER + "#ifdef COD_HAVE_CUDA\n#endif\n"),
    ("build-switch", "tests/train/CMakeLists.txt", "if(COD_CUDA)\nendif()\n"),
    ("library-call", "src/nn/a.c", body("exit(1);")),
    ("library-call", "src/nn/a.c", body("_exit(1);")),
    ("library-call", "src/nn/a.c", body("abort();")),
    ("library-call", "src/nn/a.c", body('printf("x");')),
    ("library-call", "src/nn/a.c", body('puts("x");')),
    ("library-call", "src/nn/a.c", body('perror("x");')),
    ("library-call", "src/nn/a.c", body('fprintf(stderr, "x");')),
    ("library-call", "src/nn/a.c", body('fputs("x", stdout);')),
    ("library-call", "src/nn/a.c", body('write(2, "x", 1);')),
    ("library-call", "src/cpu/kernels/a.c.inc", body("abort();")),
    ("upward-include", "src/cpu/kernels/a.c.inc", '#include "nn/graph.h"\n'),
    ("third-party", "src/nn/a.c.inc", "#include <dnnl.h>\n"),
    ("steps", "src/nn/a.c", body("COD_TRY_GOTO(status, end, cod_g());")),
    ("steps", "src/nn/a.c", body("if (status == COD_OK)\n        status = cod_g();")),
    ("steps", "tests/nn/a.c", body("if (bag->status == COD_OK) /* why */\n        bag->status = cod_g();")),
    ("format", "src/nn/a.c", "int  cod_x;\n"),
    ("format", "tests/nn/a.c", "void f(void) { return; }\n"),
    ("format", "src/cuda/a.cu", "int  cod_x;\n"),
    ("format", "src/cpu/kernels/a.c.inc", "int  cod_x;\n"),
    ("long-file", "src/nn/a.c", "int cod_x;\n" * 501),
    ("wide-line", "src/nn/a.c", "/* " + "wide " * 24 + "*/\nint cod_x;\n"),
    ("long-file", "tests/nn/a.c", "int cod_x;\n" * 601),
    ("long-file", "src/cpu/kernels/a.c.inc", "int cod_x;\n" * 501),
    ("long-file", "tools/a.sh", "true\n" * 501),
    ("long-file", "tools/lint/long_files.txt", "tools/long.c: a table\ntools/gone.c: was long once\n"),
    ("long-file", "tools/lint/long_files.txt", "tools/long.c:\n"),
    ("to-do", "src/nn/a.c", "/* TO" "DO: later */\n"),
    ("to-do", "src/cpu/kernels/a.c.inc", "/* TO" "DO: later */\n"),
    ("to-do", "tools/a.sh", "# FIX" "ME\n"),
    ("header-comment", "src/nn/a.h", "int cod_x;\n"),
    ("whitespace", "tools/a.sh", "\ttrue\n"),
    ("whitespace", "cmake/a.cmake", "include(x) \n"),
    ("whitespace", "configs/a.yaml", "a: 1"),
]


def lint(root):
    return subprocess.run([sys.executable, str(LINT), str(root)], capture_output=True, text=True)


class LintTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cod_lint_"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copy(ROOT / ".clang-format", self.root)
        for name, content in CLEAN.items():
            self.write(name, content)

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def test_a_clean_tree_passes(self):
        result = lint(self.root)
        self.assertEqual((result.returncode, result.stdout), (0, "lint: clean\n"), result.stderr)

    def test_each_planted_violation_fails(self):
        for rule, name, content in PLANTED:
            with self.subTest(rule=rule, file=name, content=content[:60]):
                before = CLEAN.get(name)
                self.write(name, content)
                result = lint(self.root)
                if before is None:
                    (self.root / name).unlink()
                else:
                    self.write(name, before)
                findings = result.stdout.splitlines()[:-1]
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertTrue(any(line.startswith(f"{name}:") and f": {rule}: " in line for line in findings), findings)
                if rule != "levels":
                    self.assertEqual({line.split(": ")[1] for line in findings}, {rule}, findings)

    def test_a_named_to_do_passes(self):
        self.write("tools/a.sh", "# TO" "DO(#12): later\n")
        self.assertEqual(lint(self.root).returncode, 0)

    def test_a_folder_that_is_no_tree_is_said(self):
        self.assertEqual(lint(self.root / "src").returncode, 2)


if __name__ == "__main__":
    unittest.main()
