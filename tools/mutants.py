"""Plants the faults of tests/mutants.txt (mutants) in a copy of the sources, all in one build: COD_MUTANT=17 in the environment switches
number 17 on. Each test runs once without a fault, to learn which mutants it reaches; then each mutant meets the tests that reach it,
quick and fast ones first, until one fails. All of it lies in build/mutants; run again, it goes on where it stopped."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutants.txt"
WORK = ROOT / "build/mutants"
SOURCE, BUILD, REACH = WORK / "source", WORK / "build", WORK / "reached"
RESULTS, PLAIN, PLANTED = WORK / "results.tsv", WORK / "plain.tsv", WORK / "planted.txt"

Mutant = collections.namedtuple("Mutant", "number file original mutated")

# --- the list ---

HEADER = """# Faults that tools/mutants.sh plants, each as "number file: line  =>  mutated line"; with ";" the statement is left out.
# Made by tools/mutants.sh --choose, then read, and doubtful ones replaced; a line must occur once in its file.
"""


def read_list(path):
    mutants = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            match = re.fullmatch(r"(\d+) (\S+): (.+)  =>  (.+)", line)
            if not match or not 0 < int(match[1]) < 4096:
                sys.exit(f"mutants: {path}:{number}: expected 'number file: line  =>  mutated line', with a number from 1 to 4095")
            mutants.append(Mutant(int(match[1]), *match.groups()[1:]))
    repeated = [number for number, count in collections.Counter(m.number for m in mutants).items() if count > 1]
    if repeated:
        sys.exit(f"mutants: {path}: number {repeated[0]} is there twice")
    return mutants


def module(file):
    parts = file.split("/")
    return parts[1] if parts[0] == "src" else parts[0]


def expression(line):
    """(head, expression, tail) of a line: what an operator may change, or None."""
    for pattern in (r"((?:\} else )?(?:if|while) \()(.*)(\)(?: \{)?)", r"(for \([^;]*; )([^;]+)(;[^;]*\)(?: \{)?)",
                    r"(return )(.+)(;)", r"((?:[\w*]+ )*\*?[\w.\[\]>-]+ [+-]?= )(.+)(;)"):
        match = re.fullmatch(pattern, line)
        if match and balanced(match[2]):
            return match.groups()
    return None


def balanced(text):
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def scheme(mutant):
    """The line that holds the original and, where number is switched on, the fault."""
    if mutant.mutated == ";":
        return f"if (!cod_mutant({mutant.number})) {mutant.original}"
    original, mutated = expression(mutant.original), expression(mutant.mutated)
    if not original or not mutated or original[0] != mutated[0] or original[2] != mutated[2]:
        sys.exit(f"mutants: number {mutant.number}: only a condition, a value that is returned or assigned, or a whole call (;) can change")
    return f"{original[0]}cod_mutant({mutant.number}) ? ({mutated[1]}) : ({original[1]}){original[2]}"


# --- choosing ---

NO_FAULT = re.compile(r"log|hint|prefetch|_free|free\(|destroy|clear\(|close\(|trace|stderr|verbose|progress|advice|assert|tune|fast|seconds|reserve|capacity"
                      r"|alloc|lock|va_end|va_start|unlock|release|pragma|static |constexpr|\?.*\?|[\"\\']|//|/\*|warn|sizeof", re.I)
OPERATORS = ((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "),
             (" || ", " && "), (" + ", " - "), (" * ", " + "), (" / ", " + "))


# Timing and tuning, which change speed alone, and what needs NVIDIA's libraries or is run by hand.
NO_FILE = re.compile(r"src/c(pu|uda)/.*(tune|trial|peak|bench|choices)|src/cuda/(cudnn|cublaslt|nccl|conv_library|library)|tools/bench/(?!scale_|codec)"
                     r"|src/co(dec/trial|mm/bench)")


def mutations(line, head_type, is_cpp):
    """The mutated lines that the operators make of one statement."""
    if NO_FAULT.search(line):
        return []
    if re.fullmatch(r"(COD_TRY|COD_THEN|cod_\w+|[a-z]+_\w+)\(.*\);", line) and balanced(line[:-1]):
        return [";"]
    parts = expression(line)
    if not parts or parts[0].startswith("const ") and is_cpp or "{" in parts[1] or parts[1] == "0" or re.search(r"^[^()]*,", re.sub(r"\([^()]*\)", "", parts[1])):
        return []
    head, value, tail = parts
    found = []
    if re.match(r"if|\} else if", head):
        found.append(f"!({value})")
    if head.startswith("for"):
        if re.fullmatch(r"\w+ < [\w.>\[\]-]+", value) and re.match(r"; \w+\+\+\)", tail):
            found.append(value.replace(" < ", " + 1 < "))  # without the last turn; <= would read past the end
    else:
        for old, new in OPERATORS:
            if old in value and not re.search(r"< 0$|> 0 \?|^([^ ]+) [<>]=? ([^ ]+) \? (\1 : \2|\2 : \1)$", value) and not (old == " + " and "->" in value.split(old)[0] and "*" in head):
                found.append(value.replace(old, new, 1))
    if not head.startswith(("if", "}", "for", "while")):
        if re.search(r"(?<![\w.\[])\d(?![\w.])", value):
            found.append(re.sub(r"(?<![\w.\[])\d(?![\w.])", lambda m: str(int(m[0]) + 1), value, count=1))
        swapped = re.fullmatch(r"([^?]+) \? ([^:?]+) : ([^:?]+)", value)
        if swapped and balanced(swapped[1]) and balanced(swapped[2]):
            found.append(f"{swapped[1]} ? {swapped[3]} : {swapped[2]}")
    if head == "return " and head_type == "cod_status" and re.fullmatch(r"cod_\w+\(.*\)", value) and "cod_fail" not in value:
        found = ["COD_OK"]
    return [head + mutated + tail for mutated in found if balanced(mutated)]


def candidates(file, text):
    lines = text.splitlines()
    counts = collections.Counter(line.strip() for line in lines)
    inside, head_type, before, found = False, "", "", []
    for raw in lines:
        line = raw.strip()
        if raw == "{":
            inside = True
        elif raw.startswith("}"):
            inside = False
        elif raw and not raw[0].isspace():
            match = re.match(r"(?:static )?(\w+) \*?\w+\(", raw)
            head_type = match[1] if match else head_type
        elif inside and counts[line] == 1:
            made = mutations(line, head_type, file.endswith(".cu"))
            if made and (made != [";"] or before[-1:] in "{};") and (before[-1:] in "{};)" or before.endswith("else")):
                found.append((line, made))
        if line and not line.startswith(("/*", "*", "//")):
            before = line
    return found


def choose(count, seed, least):
    dice = random.Random(seed)
    modules = collections.defaultdict(dict)
    for path in sorted([*ROOT.glob("src/**/*.c"), *ROOT.glob("src/**/*.cu"), *ROOT.glob("tools/**/*.c")]):
        file = str(path.relative_to(ROOT))
        found = [] if NO_FILE.match(file) else candidates(file, path.read_text())
        if found:
            modules[module(file)][file] = found
    size = {name: sum(len(found) for found in files.values()) for name, files in modules.items()}
    mutants = []
    for name in sorted(modules):
        places = [(file, *place) for file, found in sorted(modules[name].items()) for place in found]
        share = min(len(places), max(least, round(count * size[name] / sum(size.values()))))
        for part in range(share):  # one place out of each stretch of the module: all files in proportion
            first, end = part * len(places) // share, (part + 1) * len(places) // share
            file, line, made = places[dice.randrange(first, end)]
            mutants.append(Mutant(len(mutants) + 1, file, line, dice.choice(made)))
    LIST.write_text(HEADER + "".join("{} {}: {}  =>  {}\n".format(*mutant) for mutant in mutants))
    print(f"mutants: {len(mutants)} chosen in {len(modules)} modules: {LIST.relative_to(ROOT)}")


# --- planting and building ---

def plant(mutants):
    """Copies the sources with all mutants in them; returns the numbers of those whose line is gone."""
    by_file, stale = collections.defaultdict(list), []
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
    copied = set()
    for path in sorted(ROOT.rglob("*")):
        name = str(path.relative_to(ROOT))
        if name.split("/")[0] in ("build", ".git", "Testing") or not path.is_file():
            continue
        data = path.read_bytes()
        if name in by_file:
            data, gone = planted_text(data.decode(), by_file.pop(name))
            stale += gone
        write(SOURCE / name, data, path)
        copied.add(SOURCE / name)
    for name in ("mutant.c", "mutant.h"):
        path = ROOT / "tests/support/mutants" / name
        write(SOURCE / "src/core" / name, path.read_bytes(), path)
        copied.add(SOURCE / "src/core" / name)
    for path in SOURCE.rglob("*"):
        if path.is_file() and path not in copied:
            path.unlink()
    return sorted(stale + [mutant.number for gone in by_file.values() for mutant in gone])


def planted_text(text, mutants):
    lines, stale = text.split("\n"), []
    for mutant in mutants:
        places = [i for i, line in enumerate(lines) if line.strip() == mutant.original]
        if len(places) != 1:
            stale.append(mutant.number)
            continue
        line = lines[places[0]]
        lines[places[0]] = line[:len(line) - len(line.lstrip())] + scheme(mutant)
    return ('#include "core/mutant.h"\n' + "\n".join(lines)).encode(), stale


def write(path, data, like):
    """Writes a file only where it differs, so that the build does no work twice."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        shutil.copymode(like, path)


def build(options):
    command = ["cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCOD_CUDA=OFF", "-DCOD_WERROR=OFF"]
    if shutil.which("ccache"):
        command += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    targets = options.targets.split() if options.targets else ["all", "cod_quick_tests" if options.suite == "quick" else "cod_tests"]
    for step in (command, ["cmake", "--build", BUILD, "-j", str(options.jobs), "--target", *targets]):
        with open(WORK / "build.log", "a") as log:
            if subprocess.run(step, stdout=log, stderr=log).returncode != 0:
                sys.exit(f"mutants: the build failed; see {WORK / 'build.log'}")


# --- running ---

def tests_of(options):
    command = ["ctest", "--test-dir", BUILD, "--show-only=json-v1"]
    for flag, value in (("-R", options.tests), ("-L", options.label), ("-LE", options.exclude_label)):
        command += [flag, value] if value else []
    full = {}
    for test in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if any(part.startswith(str(BUILD)) and not os.path.exists(part) for part in test.get("command", [str(BUILD / "missing")])):
            continue  # its program was not built
        full[test["name"]] = "full" in properties.get("LABELS", [])
    return {name: is_full for name, is_full in full.items() if options.suite == "full" or not is_full}


def run_test(name, limit, **variables):
    """(whether it passed, seconds)."""
    begin = time.monotonic()
    child = subprocess.Popen(["ctest", "--test-dir", BUILD, "-R", f"^{re.escape(name)}$"], env={**os.environ, **variables},
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        passed = child.wait(limit) == 0
    except subprocess.TimeoutExpired:
        passed = False
        for sign in (signal.SIGTERM, signal.SIGKILL):  # launchers end their ranks at the first
            os.killpg(child.pid, sign)
            try:
                child.wait(5)
                break
            except subprocess.TimeoutExpired:
                pass
    return passed, time.monotonic() - begin


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


class Progress:
    def __init__(self, total, what):
        self.begin, self.done, self.total, self.what, self.lock = time.monotonic(), 0, total, what, threading.Lock()

    def add(self, path, row, text):
        with self.lock:
            if row:
                with open(path, "a") as file:
                    file.write("\t".join(row) + "\n")
            else:
                self.done += 1
                left = (time.monotonic() - self.begin) / self.done * (self.total - self.done)
                print(f"{self.what} {self.done}/{self.total}: {text}; {left / 60:.0f} min left", flush=True)


def measure_reach(tests, jobs):
    todo = [name for name in tests if name not in {row[0] for row in rows(PLAIN)}]
    progress = Progress(len(todo), "test")

    def measure(name):
        folder = REACH / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        passed, seconds = run_test(name, 1800, COD_MUTANTS_REACHED=str(folder), COD_MUTANT="0")
        progress.add(PLAIN, [name, "passed" if passed else "failed", f"{seconds:.2f}"], "")
        progress.add(PLAIN, None, f"{name} {'reaches ' + str(len(list(folder.iterdir()))) if passed else 'fails without a mutant: left out'}")

    in_parallel(measure, todo, jobs)


def in_parallel(work, items, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(work, item) for item in items]:
                future.result()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("mutants: interrupted; the same command goes on from here")


def plain_seconds():
    return {row[0]: float(row[2]) for row in rows(PLAIN) if row[1] == "passed"}


def reached_by():
    reached = collections.defaultdict(set)
    for name in plain_seconds():
        for file in (REACH / name).iterdir():
            reached[int(file.name)].add(name)
    return reached


def hunt(mutants, tests, options):
    seconds, reached = plain_seconds(), reached_by()
    done, found = set(), set()
    for number, verdict, test, _ in rows(RESULTS):
        done.add((int(number), test))
        found |= {int(number)} if verdict == "found" else set()
    work = {}
    for mutant in mutants:
        names = [name for name in reached[mutant.number] if name in tests and (mutant.number, name) not in done]
        if names and (options.all or mutant.number not in found):
            work[mutant] = sorted(names, key=lambda name: (tests[name], seconds[name]))
    progress = Progress(len(work), "mutant")

    def try_mutant(mutant):
        finder = None
        for name in work[mutant]:
            passed, took = run_test(name, 5 * seconds[name] + 20, COD_MUTANT=str(mutant.number))
            progress.add(RESULTS, [str(mutant.number), "passed" if passed else "found", name, f"{took:.2f}"], "")
            finder = finder or (None if passed else name)
            if finder and not options.all:
                break
        progress.add(RESULTS, None, f"{mutant.number} in {mutant.file} {'found by ' + finder if finder else 'SURVIVES ' + str(len(work[mutant])) + ' tests'}")

    in_parallel(try_mutant, work, options.jobs)


def forget_changed(mutants):
    """Drops results of mutants that changed since the last time; reach is then measured anew."""
    before = {m.number: m for m in read_list(PLANTED)} if PLANTED.exists() else {}
    changed = {str(m.number) for m in mutants if before.get(m.number) != m} | {str(n) for n in before.keys() - {m.number for m in mutants}}
    if changed and before:
        kept = [row for row in rows(RESULTS) if row[0] not in changed]
        RESULTS.write_text("".join("\t".join(row) + "\n" for row in kept))
        PLAIN.unlink(missing_ok=True)
    shutil.copy(LIST, PLANTED)


# --- the table ---

def table(mutants):
    is_full = tests_of(argparse.Namespace(tests=None, label=None, exclude_label=None, suite="full"))
    reached, finders = reached_by(), collections.defaultdict(set)
    for number, verdict, test, _ in rows(RESULTS):
        if verdict == "found":
            finders[int(number)].add(test)
    count = collections.defaultdict(lambda: [0] * 4)
    for mutant in mutants:
        names = finders[mutant.number]
        figures = (1, bool(reached[mutant.number]), any(not is_full.get(name) for name in names), bool(names))
        for key in (module(mutant.file), "all"):
            count[key] = [a + b for a, b in zip(count[key], figures)]
    print("| module | planted | reached | found by quick tests | found by all |\n| --- | ---: | ---: | ---: | ---: |")
    for name in [*sorted(count.keys() - {"all"}), "all"]:
        print(f"| {name} | {' | '.join(map(str, count[name]))} |")
    stale = {int(row[0]) for row in rows(WORK / "stale.tsv")}
    for title, chosen in (("Not found by the tests that reach them and were run", lambda n: reached[n] and not finders[n]),
                          ("Reached by no test that was run", lambda n: not reached[n] and n not in stale), ("Stale", lambda n: n in stale)):
        listed = [m for m in mutants if chosen(m.number)]
        if listed:
            print(f"\n{title}:\n")
        for m in listed:
            lines = [i for i, line in enumerate((ROOT / m.file).read_text().splitlines(), 1) if line.strip() == m.original] if (ROOT / m.file).exists() else []
            print(f"- {m.number} `{m.file}{':' + str(lines[0]) if lines else ''}`: `{m.original}` as `{m.mutated}`")
    if any(len(names) > 1 for names in finders.values()):  # of a run with --all
        alone = {name for names in finders.values() if len(names) == 1 for name in names}
        print("\nTests that find no mutant alone:", " ".join(sorted(plain_seconds().keys() - alone)))
    failing = [row[0] for row in rows(PLAIN) if row[1] == "failed"]
    if failing:
        print("\nLeft out, because they fail without a mutant:", " ".join(failing))


def numbers(text):
    chosen = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            sys.exit(f"mutants: --mutants needs numbers such as 1-40,77, not '{text}'")
        chosen |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return chosen


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"mutants: {message}; --help lists the options\n")


def main():
    parser = Parser(prog="tools/mutants.sh", description=__doc__)
    parser.add_argument("--choose", action="store_true", help="write tests/mutants.txt anew, and end")
    parser.add_argument("--count", type=int, default=260, help="how many --choose takes, in proportion to the modules (260)")
    parser.add_argument("--seed", type=int, default=1, help="of --choose (1)")
    parser.add_argument("--least", type=int, default=6, help="how many --choose takes in each module at least (6)")
    parser.add_argument("--table", action="store_true", help="print the results so far in Markdown, and end")
    parser.add_argument("--all", action="store_true", help="each mutant meets all tests that reach it, not only until one fails")
    parser.add_argument("--suite", choices=("quick", "full"), default="full", help="quick: without tests that have the label full")
    parser.add_argument("--tests", metavar="REGEX", help="only tests with such names")
    parser.add_argument("--label", metavar="REGEX", help="only tests with such a label")
    parser.add_argument("--exclude-label", metavar="REGEX", help="no tests with such a label")
    parser.add_argument("--mutants", type=numbers, metavar="LIST", help="only these, such as 1-40,77")
    parser.add_argument("--targets", metavar="NAMES", help="build only these targets, and run the tests whose programs are there")
    parser.add_argument("--reach", action="store_true", help="end when it is known which tests reach which mutants")
    parser.add_argument("--anew", action="store_true", help="forget earlier results first, as after a change of sources or tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many programs are built or tests run together")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs needs a number from 1 up")
    for flag in ("tests", "label", "exclude_label"):
        try:
            re.compile(getattr(options, flag) or "")
        except re.error as problem:
            parser.error(f"--{flag.replace('_', '-')} needs a regular expression: {problem}")
    if options.choose:
        return choose(options.count, options.seed, options.least)
    if not LIST.exists():
        sys.exit("mutants: there is no tests/mutants.txt; --choose makes it")
    mutants = read_list(LIST)
    if options.table:
        if not PLAIN.exists():
            sys.exit("mutants: there are no results yet")
        return table(mutants)
    WORK.mkdir(parents=True, exist_ok=True)
    if options.anew:
        for path in (RESULTS, PLAIN):
            path.unlink(missing_ok=True)
    stale = plant(mutants)
    (WORK / "stale.tsv").write_text("".join(f"{number}\n" for number in stale))
    if stale:
        print("mutants: stale, for their lines are gone or not unique:", " ".join(map(str, stale)), flush=True)
    forget_changed(mutants)
    build(options)
    tests = tests_of(options)
    if not tests:
        sys.exit("mutants: no test is left by --tests, --label, --exclude-label and --suite")
    measure_reach(tests, options.jobs)
    if not options.reach:
        hunt([m for m in mutants if m.number not in stale and (not options.mutants or m.number in options.mutants)], tests, options)
        print("mutants: done; tools/mutants.sh --table shows the results")


if __name__ == "__main__":
    main()
