#!/usr/bin/env python3
"""Finds circles inside the modules: files that use each other, directly or over other files.

usage: circles.py [--allowed FILE] BUILD_FOLDER

Reads the symbols of the object files that BUILD_FOLDER/compile_commands.json names, so all modules must be built. Callbacks make no circle: the
file that calls one does not name it. Files of CUDA (.cu) are left out. Prints each circle with the symbols that close it, unless a line
"module: a.c b.c: reason" of FILE (tools/lint/circles.txt) allows it. Exit code 0: clean, 1: findings, 2: cannot run.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys


def modules_of(build):
    """{module: {object file: source file}}, paths from the build folder and from the module's folder on."""
    modules = collections.defaultdict(dict)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        match = re.search(r" -o (CMakeFiles/cod_(\w+)\.dir/src/\2/(\S+\.c)\.o) ", entry["command"])
        if match:
            modules[match[2]][match[1]] = match[3]
    return modules


def uses_of(build, sources):
    """{file: {other file: the symbols that it takes from there}} of one module."""
    wanted, home = collections.defaultdict(set), {}
    listing = subprocess.run(["nm", "--print-file-name", *sources], cwd=build, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, rest = line.partition(":")
        kind, symbol = rest.split()[-2:]
        if kind in "Uw":
            wanted[sources[path]].add(symbol)
        elif kind.isupper(): # small letters: static
            home[symbol] = sources[path]
    uses = {name: collections.defaultdict(list) for name in sources.values()}
    for name in uses:
        for symbol in sorted(wanted[name] & home.keys()):
            uses[name][home[symbol]].append(symbol)
    return uses


def circles_of(uses):
    """The sets of files of which each reaches all others."""
    reached = {}
    for name in uses:
        reached[name], open_files = set(), [name]
        while open_files:
            new = uses[open_files.pop()].keys() - reached[name]
            reached[name] |= new
            open_files += new
    return {frozenset(b for b in reached[a] if a in reached[b]) for a in uses if a in reached[a]}


def read_allowed(path):
    """{(module, files): number of the line}"""
    allowed = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+): ([^:]+\.c): (\S.*)", line)
        if not match:
            sys.exit(f"{path}:{number}: not of the form 'module: a.c b.c: reason'")
        allowed[match[1], frozenset(match[2].split())] = number
    return allowed


def check(modules, build, allowed, allowed_path):
    """The findings, each of one line or several."""
    for module, sources in sorted(modules.items()):
        uses = uses_of(build, sources)
        for circle in sorted(map(sorted, circles_of(uses))):
            if allowed.pop((module, frozenset(circle)), None) is None:
                yield "\n    ".join([f"{module}: {' '.join(circle)} use each other"] + [
                    f"{name} -> {other}: {' '.join(uses[name][other])}" for name in circle for other in circle if other in uses[name]])
    for (module, files), number in allowed.items():
        yield f"{allowed_path}:{number}: the files of {module}, {' '.join(sorted(files))}, are no circle of their own; drop or correct the line"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, metavar="BUILD_FOLDER")
    parser.add_argument("--allowed", type=pathlib.Path, metavar="FILE", default=pathlib.Path(__file__).with_name("circles.txt"))
    args = parser.parse_args()
    if not (args.build / "compile_commands.json").exists():
        print(f"circles: {args.build} has no compile_commands.json", file=sys.stderr)
        return 2
    modules = modules_of(args.build)
    missing = [path for sources in modules.values() for path in sources if not (args.build / path).exists()]
    if missing or not modules:
        print(f"circles: {args.build} lacks {len(missing) or 'all'} object files of modules; build them first", file=sys.stderr)
        return 2
    findings = list(check(modules, args.build, read_allowed(args.allowed), args.allowed))
    for finding in findings:
        print(finding)
    print(f"circles: {len(findings)} findings in {len(modules)} modules" if findings else f"circles: clean, {len(modules)} modules")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
