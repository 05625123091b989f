"""Plants the faults of tests/mutants.txt (mutants) in a copy of the sources, all in one build: COD_MUTANT=17 in the environment switches
number 17 on. Each test runs once without a fault, to learn which mutants it reaches; then each mutant meets the tests that reach it,
fast ones and those of its own module first, until one fails. All of it lies in build/mutants; run again, it goes on where it stopped,
and tests whose own files have changed are run anew."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from mutants_list import LIST, ROOT, choose, module, read_list, scheme

WORK = ROOT / "build/mutants"
SOURCE, BUILD, REACH = WORK / "source", WORK / "build", WORK / "reached"
RESULTS, PLAIN, PLANTED = WORK / "results.tsv", WORK / "plain.tsv", WORK / "planted.txt"

MARKS = "<!-- mutants -->\n", "<!-- end of mutants -->\n"
NEAR = 20  # a test of the mutant's own module goes before others that take up to so many times less

Test = collections.namedtuple("Test", "full module changed_s")  # module: its folder in tests; changed_s: when its own files changed last

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
    tests = {}
    for test in json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if any(part.startswith(str(BUILD)) and not os.path.exists(part) for part in test.get("command", [str(BUILD / "missing")])):
            continue  # its program was not built
        full = "full" in properties.get("LABELS", [])
        if options.suite == "full" or not full:
            tests[test["name"]] = Test(full, pathlib.Path(properties["WORKING_DIRECTORY"]).name, changed_s(test["command"]))
    return tests


def changed_s(command):
    """When a test's own files changed last: the script that it runs, and all C files in the folder of its program."""
    files = []
    for path in map(pathlib.Path, command):
        if path.is_relative_to(SOURCE):
            files.append(path)
        elif path.is_relative_to(BUILD / "tests"):
            files += (SOURCE / path.parent.relative_to(BUILD)).glob("*.[ch]")
    return max((file.stat().st_mtime for file in files), default=0)


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


def forget_tests(tests):
    """Drops what is known of tests whose own files changed since they were measured: their reach, and the mutants that they did not find."""
    changed = {name for name, test in tests.items() if (REACH / name).exists() and (REACH / name).stat().st_mtime < test.changed_s}
    if changed:
        keep_rows(PLAIN, lambda row: row[0] not in changed)
        keep_rows(RESULTS, lambda row: row[1] == "found" or row[2] not in changed)


def keep_rows(path, is_kept):
    path.write_text("".join("\t".join(row) + "\n" for row in rows(path) if is_kept(row)))


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
            near = module(mutant.file)
            work[mutant] = sorted(names, key=lambda name: (tests[name].full, seconds[name] / (NEAR if tests[name].module == near else 1)))
    progress = Progress(len(work), "mutant")

    def try_mutant(mutant):
        finder, begin, tried = None, time.monotonic(), 0
        for name in work[mutant]:
            if options.most and time.monotonic() - begin > options.most:
                break
            limit = 5 * seconds[name] + 20
            passed, took = run_test(name, limit, COD_MUTANT=str(mutant.number))
            if not passed and not run_test(name, limit, COD_MUTANT="0")[0]:
                continue  # a busy machine, or a test that fails now and then: for the next run
            progress.add(RESULTS, [str(mutant.number), "passed" if passed else "found", name, f"{took:.2f}"], "")
            tried += 1
            finder = finder or (None if passed else name)
            if finder and not options.all:
                break
        survives = f"SURVIVES {tried} tests" + (f", and {len(work[mutant]) - tried} are left" if tried < len(work[mutant]) else "")
        progress.add(RESULTS, None, f"{mutant.number} in {mutant.file} {'found by ' + finder if finder else survives}")

    in_parallel(try_mutant, work, options.jobs)


def forget_changed(mutants):
    """Drops results of mutants that changed since the last time; reach is then measured anew."""
    before = {m.number: m for m in read_list(PLANTED)} if PLANTED.exists() else {}
    changed = {str(m.number) for m in mutants if before.get(m.number) != m} | {str(n) for n in before.keys() - {m.number for m in mutants}}
    if changed and before:
        keep_rows(RESULTS, lambda row: row[0] not in changed)
        PLAIN.unlink(missing_ok=True)
    shutil.copy(LIST, PLANTED)


# --- the table ---

def table(mutants, file):
    tests = tests_of(argparse.Namespace(tests=None, label=None, exclude_label=None, suite="full"))
    reached, finders, tried = reached_by(), collections.defaultdict(set), collections.defaultdict(set)
    for number, verdict, test, _ in rows(RESULTS):
        (finders if verdict == "found" else tried)[int(number)].add(test)
    left = {m.number for m in mutants if not finders[m.number] and reached[m.number] - tried[m.number]}
    surviving = {m.number for m in mutants if not finders[m.number] and reached[m.number]} - left
    count = collections.defaultdict(lambda: [0] * 6)
    for mutant in mutants:
        number, names = mutant.number, finders[mutant.number]
        figures = (1, bool(reached[number]), any(name in tests and not tests[name].full for name in names), bool(names), number in surviving, number in left)
        for key in (module(mutant.file), "all"):
            count[key] = [a + b for a, b in zip(count[key], figures)]
    lines = ["| module | planted | reached | found by quick tests | found by all | surviving | not tried to the end |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    lines += [f"| {name} | {' | '.join(map(str, count[name]))} |" for name in [*sorted(count.keys() - {"all"}), "all"]]
    measured = [tests[name].full for name in plain_seconds() if name in tests]
    lines.append(f"\nMeasured with {measured.count(False)} quick tests and {measured.count(True)} with the label `full`.")
    if file:
        return write_between_marks(file, "\n".join(lines) + "\n")
    print("\n".join(lines))
    stale = {int(row[0]) for row in rows(WORK / "stale.tsv")}
    for title, chosen in (("Surviving", lambda n: n in surviving), ("Not found yet, and not tried to the end", lambda n: n in left),
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


def write_between_marks(file, made):
    text = file.read_text()
    if any(text.count(mark) != 1 for mark in MARKS):
        sys.exit(f"mutants: {file} needs one line '{MARKS[0].strip()}' and one line '{MARKS[1].strip()}'")
    before, rest = text.split(MARKS[0])
    file.write_text(before + MARKS[0] + made + MARKS[1] + rest.split(MARKS[1])[1])


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
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="puts --table's table into FILE, between its two marks")
    parser.add_argument("--all", action="store_true", help="each mutant meets all tests that reach it, not only until one fails")
    parser.add_argument("--most", type=int, metavar="SECONDS", help="leave a mutant that its tests have not found in this time for the next run")
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
        return table(mutants, options.write)
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
    forget_tests(tests)
    measure_reach(tests, options.jobs)
    if not options.reach:
        hunt([m for m in mutants if m.number not in stale and (not options.mutants or m.number in options.mutants)], tests, options)
        print("mutants: done; tools/mutants.sh --table shows the results")


if __name__ == "__main__":
    main()
