#!/usr/bin/env python3
"""Checks what the compiler does not: the house's rules (docs/architecture.md, CONTRIBUTING.md).

usage: lint.py [--no-format] [ROOT]

Prints one line "file:line: rule: message" a finding. Exit code 0: clean, 1: findings, 2: cannot run.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# Header pattern -> where it may be included, below src/ and tools/. Tests are free.
THIRD_PARTY = [
    (r"mpi(-ext)?\.h|mpi/.*", ["src/comm/", "tools/main.c"]),
    (r"(oneapi/)?dnnl.*", ["src/cpu/"]),
    (r"(?!cuda/\w+\.h$)(cuda|cudnn|cublas|curand|nvrtc|nvtx|nvToolsExt|nccl|cooperative_groups)[^/]*(/.*)?", ["src/cuda/"]),
    (r"yaml\.h", ["src/config/"]),
    (r"lz4.*|zstd.*", ["src/codec/"]),
    (r"(libpng\d*/)?png\w*\.h|j(peglib|error|config|morecfg|pegint)\.h|turbojpeg\.h|webp/\w+\.h|tiff\w*\.h|lcms2\w*\.h|zlib\.h", ["src/data/"]),
    (r"xxh(ash|3)\.h", ["src/core/"]),
    (r"(cjson/)?cJSON\w*\.h", ["src/io/"]),
    (r"sodium.*\.h", ["src/io/"]),
    (r"(librsvg/)?rsvg[^/]*\.h|(cairo/)?cairo[^/]*\.h|glib[^/]*(/.*)?|gio/.*|gdk-pixbuf/.*", ["src/report/png.c"]),
    (r"cmocka\w*\.h", []),
]

# What builds with and without CUDA may differ in: the tests train_off_... compile tools/main.c alone anew, and run all else as built with CUDA.
# Pattern -> the file names that it is looked for in, where it may stand.
BUILD_SWITCHES = [
    (r"\bCOD_HAVE_CUDA\b", r".*\.(c|h|inc|cu|cuh)", ["tools/main.c"]),
    (r"\bCOD_CUDA\b", r"CMakeLists\.txt|.*\.cmake", ["cmake/cuda.cmake", "cmake/gpu_check.cmake", "cmake/modules.cmake", "tests/cuda/CMakeLists.txt",
                                                    "tests/tools/CMakeLists.txt"]),
]

# Libraries neither print nor exit. Members (plan->exit, ops.abort) and our own cod_… names are not meant.
NO_CALLS = re.compile(
    r"(?<![\w.>])(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror|psignal|err|errx|warn|warnx)\s*\(")
NO_STREAMS = re.compile(r"(?<![\w.>])(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b|(?<![\w.>])(write|dprintf)\s*\(\s*[12]\s*,")
# What COD_TRY and COD_THEN took the place of. The subject of a ladder may be a member: bag->status.
OLD_STEPS = re.compile(r"\bCOD_TRY_GOTO\b|\bif \((\w[\w.>-]*) == COD_OK\)\s+\1 = ")
# Commands print names of files, classes and tensors, in which a terminal would obey control characters: by cod_print(), which escapes them, and
# display.c. relay.c and child.c print to a file in memory and about themselves. A "%s" of our own words is not told from one of foreign words,
# so the rule is for all of them. tools/bench prints its own words and figures, and stays free.
RAW_TEXT = re.compile(r"(?<![\w.>])(v?f?printf|v?dprintf|f?puts)\s*\(")
RAW_TEXT_FREE = ["tools/print.c", "tools/display.c", "tools/relay.c", "tools/child.c"]
TO_DO = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b(?!\(#\d+\))")
MAX_LINES = {"src": 500, "tools": 500}  # tests are longer: their cases are one list
MAX_LINES_ELSEWHERE = 600
MAX_COLUMNS = 120  # of C files; but a table's rows, whose columns stand three spaces apart, may be wider

C_FILES = {".c", ".h", ".inc", ".cu", ".cuh"}
TEXT_FILES = C_FILES | {".py", ".sh", ".cmake", ".txt", ".yaml", ".yml"}
FOLDERS = ["src", "tests", "tools", "cmake", "configs"]


class Lint:
    def __init__(self, root):
        self.root = root
        self.findings = []

    def report(self, path, line, rule, message):
        self.findings.append(f"{path}:{line}: {rule}: {message}")

    def files(self):
        """Paths relative to the root of every file of ours."""
        found = [p for p in self.root.glob("*") if p.is_file()]
        for folder in FOLDERS:
            found += [p for p in (self.root / folder).rglob("*") if p.is_file() and "golden" not in p.parts]
        return sorted(p.relative_to(self.root) for p in found if p.suffix in TEXT_FILES)

    def run(self, with_format):
        modules, levels = self.module_links()
        self.check_level_table(levels)
        reasons = self.long_file_reasons()
        c_files = []
        for path in self.files():
            text = (self.root / path).read_text(encoding="utf-8", errors="replace")
            self.check_text(path, text)
            self.check_build_switches(path, text)
            if path.suffix != ".txt" or path.name == "CMakeLists.txt":
                self.check_length(path, text, reasons)
            if path.suffix in C_FILES:
                c_files.append(path)
                self.check_includes(path, text, modules)
                self.check_header(path, text)
                self.check_width(path, text)
                self.check_calls(path, text)
                self.check_steps(path, text)
                self.check_raw_text(path, text)
        for name, line in reasons.items():
            self.report("tools/lint/long_files.txt", line, "long-file", f"{name} is gone or short again; drop its line")
        if with_format:
            self.check_format(c_files)

    def module_links(self):
        """What each module may include, read from cmake/modules.cmake: the build and the lint agree by construction."""
        path = pathlib.Path("cmake/modules.cmake")
        modules, levels = {}, {}
        for number, line in enumerate((self.root / path).read_text().splitlines(), 1):
            match = re.match(r"\s*cod_module\((\w+)(.*)", line)
            if not match:
                continue
            name, links, level = match[1], re.findall(r"\bcod_(\w+)", match[2]), re.search(r"\bLEVEL (\d+)", match[2])
            if not level:
                self.report(path, number, "levels", f"module '{name}' has no level; write cod_module({name} LEVEL n …)")
            levels[name] = int(level[1]) if level else 0
            for link in links:
                if levels.get(link, 99) >= levels[name]:
                    self.report(path, number, "levels", f"'{name}' links '{link}', which is not below it")
            modules[name] = set(links).union(*(modules.get(link, set()) for link in links))
        return modules, levels

    def check_level_table(self, levels):
        """The table of docs/architecture.md has every module, with the level that it has in cmake/modules.cmake, and `tools` above them all."""
        path = pathlib.Path("docs/architecture.md")
        if not (self.root / path).exists():
            return
        wanted, last = {**levels, "tools": max(levels.values()) + 1}, 1
        for number, line in enumerate((self.root / path).read_text().splitlines(), 1):
            match = re.match(r"\| (\d+) \| `(\w+)` \|", line)
            if not match:
                continue
            level, name, last = int(match[1]), match[2], number
            if wanted.get(name) != level:
                self.report(path, number, "levels", f"'{name}' has level {wanted[name]} in cmake/modules.cmake" if name in wanted else
                            f"'{name}' is no module of cmake/modules.cmake, or stands here twice")
            wanted.pop(name, None)
        for name, level in wanted.items():
            self.report(path, last, "levels", f"the table has no line for '{name}' of level {level}")

    def long_file_reasons(self):
        path = self.root / "tools/lint/long_files.txt"
        reasons = {}
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            if not line or line.startswith("#"):
                continue
            name, _, reason = line.partition(":")
            if not reason.strip():
                self.report("tools/lint/long_files.txt", number, "long-file", f"{name} has no reason")
            reasons[name] = number
        return reasons

    def check_text(self, path, text):
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line:
                self.report(path, number, "whitespace", "tab")
            if line != line.rstrip():
                self.report(path, number, "whitespace", "space at the end of the line")
            if TO_DO.search(line):
                self.report(path, number, "to-do", "name the issue: TO" "DO(#12)")
        if text and not text.endswith("\n"):
            self.report(path, text.count("\n") + 1, "whitespace", "no newline at the end of the file")

    def check_build_switches(self, path, text):
        for pattern, names, places in BUILD_SWITCHES:
            match = re.search(pattern, text)
            if match and re.fullmatch(names, path.name) and path.as_posix() not in places:
                self.report(path, text.count("\n", 0, match.start()) + 1, "build-switch", f"{match[0]} belongs to {' and '.join(places)} alone, so that "
                            "builds without CUDA are tested by train_off_...")

    def check_length(self, path, text, reasons):
        lines = text.count("\n")
        most = MAX_LINES.get(path.parts[0], MAX_LINES_ELSEWHERE)
        if lines > most and reasons.pop(path.as_posix(), None) is None:
            self.report(path, lines, "long-file", f"{lines} lines, more than {most}; split it, or give a reason in "
                        "tools/lint/long_files.txt")

    def check_width(self, path, text):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS and not re.search(r"\S {3,}\S", line):
                self.report(path, number, "wide-line", f"{len(line)} columns, more than {MAX_COLUMNS}")

    def check_includes(self, path, text, modules):
        name = path.as_posix()
        module = path.parts[1] if path.parts[0] == "src" and len(path.parts) > 2 else None
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>]+)>|"([^"]+)")', text, re.M):
            header, number = match[1] or match[2], text.count("\n", 0, match.start()) + 1
            if path.parts[0] != "tests":
                self.check_third_party(path, number, header)
            target = header.split("/")[0] if "/" in header else None
            if path.parts[0] == "tools" and target in modules and header.endswith("_internal.h"):
                self.report(path, number, "private-header", f"{header} is private to '{target}'")
            if not module:
                continue
            if target in ("tools", "tests", "src", "..", "support"):
                self.report(path, number, "upward-include", f"src may not include '{header}'")
            elif target in modules and target != module and target not in modules.get(module, set()):
                self.report(path, number, "upward-include", f"'{module}' may not see '{target}' ({header})")
            elif target in modules and target != module and header.endswith("_internal.h"):
                self.report(path, number, "private-header", f"{header} is private to '{target}'")

    def check_third_party(self, path, number, header):
        for pattern, places in THIRD_PARTY:
            if re.fullmatch(pattern, header) and not any(path.as_posix().startswith(place) for place in places):
                self.report(path, number, "third-party", f"<{header}> belongs to {' and '.join(places) or 'tests'} alone")

    def check_header(self, path, text):
        if path.suffix == ".h" and not path.name.endswith("_internal.h") and "@file" not in text:
            self.report(path, 1, "header-comment", "a public header starts with a @file comment that says what it does")

    def check_calls(self, path, text):
        if path.parts[0] != "src":
            return
        for number, line in enumerate(without_comments_and_strings(text).split("\n"), 1):
            match = NO_CALLS.search(line)
            if match:
                self.report(path, number, "library-call", f"{match[1]}(): libraries never print and never exit")
            elif NO_STREAMS.search(line):
                self.report(path, number, "library-call", "standard streams: libraries never print; use cod_log()")

    def check_steps(self, path, text):
        code = without_comments_and_strings(text)
        for match in OLD_STEPS.finditer(code):
            self.report(path, code.count("\n", 0, match.start()) + 1, "steps", f"write COD_THEN({match[1] or 'status'}, call), or an inner function "
                        "that uses COD_TRY")

    def check_raw_text(self, path, text):
        if len(path.parts) != 2 or path.parts[0] != "tools" or path.as_posix() in RAW_TEXT_FREE:
            return
        for match in RAW_TEXT.finditer(text):
            arguments = arguments_at(text, match.end())
            if match[1].endswith("puts"):
                raw = arguments[0] != "help" and not re.fullmatch(r'(""\s*)+|.*\? "" : ""', arguments[0])
            else:
                raw = match[1].startswith("v") or re.search(r"%[-+ #0-9.*]*s", call_at(text, match.end()))
            if raw:
                self.report(path, text.count("\n", 0, match.start()) + 1, "raw-text", f"{match[1]}(): text goes to terminals by cod_print(), which "
                            "escapes control characters")

    def check_format(self, c_files):
        """clang-format's word on every file; another major version would quarrel over blanks."""
        tool = next((t for t in ("clang-format-14", "clang-format") if version_of(t) == "14"), None)
        if tool is None:
            sys.exit("lint: clang-format 14 is not installed; run tools/setup.sh")
        if not c_files:
            return
        result = subprocess.run([tool, "--dry-run", "-Werror", "--ferror-limit=1", *map(str, c_files)], cwd=self.root,
                                capture_output=True, text=True)
        for match in re.finditer(r"^(.+?):(\d+):\d+: error: ", result.stderr, re.M):
            self.report(match[1], match[2], "format", f"run clang-format -i {match[1]}")
        if result.returncode and "error: " not in result.stderr:
            sys.exit(f"lint: {tool} failed: {result.stderr.strip()}")


def call_at(text, begin):
    """The arguments of a call whose opening bracket is before `begin`, with their strings."""
    depth, end = 1, begin
    for token in re.finditer(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[()]', text[begin:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        end = begin + token.start()
        if depth == 0:
            break
    return text[begin:end]


def arguments_at(text, begin):
    """Its arguments, each without what strings say."""
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', call_at(text, begin))
    return [argument.strip() for argument in code.split(",")]


def without_comments_and_strings(text):
    """The code alone, every line in its place."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda match: " " + "\n" * match[0].count("\n"), text)


def version_of(tool):
    try:
        output = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    match = re.search(r"version (\d+)", output)
    return match and match[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--no-format", action="store_true", help="leaves clang-format out")
    args = parser.parse_args()
    if not (args.root / "cmake/modules.cmake").exists():
        print(f"lint: {args.root} has no cmake/modules.cmake", file=sys.stderr)
        return 2
    lint = Lint(args.root)
    lint.run(not args.no_format)
    for finding in lint.findings:
        print(finding)
    print(f"lint: {len(lint.findings)} findings" if lint.findings else "lint: clean")
    return 1 if lint.findings else 0


if __name__ == "__main__":
    sys.exit(main())
