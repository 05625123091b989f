#!/usr/bin/env python3
"""Where the time of the tests goes: a Markdown table of seconds by tree, label and kind of test, from what ctest printed.

usage: test_times.py [--folder FOLDER] [--most N] [--write FILE]

FOLDER is where ctest ran (build/all, which tools/test.sh uses) and has its ctest.log. --write puts the table into FILE, between the lines
`<!-- test times -->` and `<!-- end -->`, in place of the one that is there.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

LINE = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*\** *(\S.*?) +([0-9.]+) sec", re.M)
TOTAL = re.compile(r"^Total Test time \(real\) = +([0-9.]+) sec", re.M)
MARKS = "<!-- test times -->\n", "<!-- end -->\n"


def kind(name):
    """What the test is of: the first word, with `test_` the first two."""
    words = name.split("_")
    return "_".join(words[:2] if words[0] == "test" else words[:1]).split(".")[0]


def table(log, labels, most):
    rows = collections.defaultdict(lambda: [0, 0.0])
    groups = collections.defaultdict(lambda: [0, 0.0])
    for name, _, seconds in LINE.findall(log):
        tree, bare = re.match(r"(?:(asan|tsan)\.)?(.*)", name).groups()
        run = "full" if tree or "full" in labels.get(name, []) else "quick"
        for total in rows[tree or "release", run, kind(bare)], groups[tree or "release", run]:
            total[0] += 1
            total[1] += float(seconds)
    if not groups:
        sys.exit("test_times: the log has no finished test")
    listed = sorted(rows.items(), key=lambda row: -row[1][1])
    lines = ["| tree | run by | kind | tests | seconds |", "| --- | --- | --- | ---: | ---: |"]
    lines += [f"| {tree} | {run} | all | {count} | {seconds:.0f} |" for (tree, run), (count, seconds) in sorted(groups.items())]
    lines += [f"| {tree} | {run} | `{name}` | {count} | {seconds:.0f} |" for (tree, run, name), (count, seconds) in listed[:most]]
    total = TOTAL.findall(log)
    if total:
        lines.append(f"\nTogether {sum(group[1] for group in groups.values()):.0f} seconds of tests in {float(total[-1]):.0f} seconds.")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/all"), help="where ctest ran (build/all)")
    parser.add_argument("--most", type=int, default=20, help="rows of single kinds, the slowest first (20)")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="puts the table into FILE, between its two marks")
    arguments = parser.parse_args()
    try:
        log = (arguments.folder / "ctest.log").read_text()
    except OSError as error:
        sys.exit(f"test_times: {error.strerror}: {arguments.folder / 'ctest.log'}; tools/test.sh writes it")
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=arguments.folder, stdout=subprocess.PIPE, check=True).stdout
    labels = {test["name"]: next((p["value"] for p in test["properties"] if p["name"] == "LABELS"), []) for test in json.loads(shown)["tests"]}
    made = table(log, labels, arguments.most)
    if arguments.write is None:
        print(made, end="")
        return
    text = arguments.write.read_text()
    if any(text.count(mark) != 1 for mark in MARKS):
        sys.exit(f"test_times: {arguments.write} needs one line '{MARKS[0].strip()}' and one line '{MARKS[1].strip()}'")
    before, rest = text.split(MARKS[0])
    arguments.write.write_text(before + MARKS[0] + made + MARKS[1] + rest.split(MARKS[1])[1])


if __name__ == "__main__":
    main()
