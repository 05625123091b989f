#!/usr/bin/env python3
"""The documentation against the tree: links, tasks, options, messages, terms and width. python3 test_docs.py [CASE ...]"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/adr").glob("*.md")),
         *sorted((ROOT / "docs/notebook").glob("*.md"))]

# Who reads README, concepts and extending can name the file for each of these: (task, file, what it holds).
TASKS = [
    ("add a network architecture", "src/nn/model.c", "const cod_model_kind *const kinds[]"),
    ("add an option to section train", "src/train/options.c", "static const cod_option "),
    ("add a loss of the task", "src/train/task.c", "cod_loss_spec cod_train_loss("),
    ("add an operation that networks can use", "src/core/backend.h", "typedef enum cod_op_kind"),
    ("change the sub-steps of adversarial recipes", "src/gan/builder.c", "gan_add_"),
    ("add a way for ranks to co-operate", "src/train/strategy.h", "typedef struct cod_strategy_ops"),
    ("change how peers' weights are merged", "src/exchange/merge.c", "alpha"),
    ("change how a teacher's loss is weighted over the run", "src/distill/schedule.c", "ramp"),
    ("read another kind of labelled examples", "src/data/labelled.c", "cod_labelled"),
    ("add a sub-command", "tools/main.c", '{"train", '),
]
READ = ["README.md", "docs/concepts.md", "docs/extending.md"]

# Pages whose prose is at most 120 columns; tables, code, formulas and pictures may be wider.
NARROW = ["index.md", "concepts.md", "glossary.md", "troubleshooting.md", "extending.md", "architecture.md", "evidence.md", "strategies.md",
          "classification.md", "clusters.md", "compare.md", "environment.md", "exchange.md", "fuzzing.md", "report.md",
          "scale.md"]
MAX_COLUMNS = 120


def prose(text):
    """(number, line) of what is neither code nor a table."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not re.match(r"    |\||!\[|#", line):
            yield number, line


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    fenced = False
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = re.match(r"#+ (.*)", line)
        if heading and not fenced:
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            count = sum(1 for other in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", other))
            found.add(f"{anchor}-{count}" if anchor in found else anchor)
    return found


def broken_links(page, text):
    """What links of a page lead nowhere."""
    code = re.compile(r"`[^`]*`")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("    "):
            continue
        for target in re.findall(r"\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)", code.sub("`", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists():
                yield f"{page.relative_to(ROOT)}:{number}: '{name}' is not there"
            elif anchor and anchor not in anchors(path):
                yield f"{page.relative_to(ROOT)}:{number}: '{path.name}' has no heading '#{anchor}'"


def sections():
    """{section: keys} of docs/config.md; options of models and of the top level are left out."""
    found, section = {}, None
    for line in (ROOT / "docs/config.md").read_text().splitlines():
        heading, row = re.match(r"## `(\w+)`$", line), re.match(r"\| `(\w+)` \|", line)
        if line.startswith("##"):
            section = heading[1] if heading else section if line.startswith("###") else None
        if heading:
            found[section] = set()
        elif row and section:
            found[section].add(row[1])
    return found


def unknown_options(name, text, known):
    """Words such as `train.rate` of a section that has no such key."""
    files = r"(?:md|h|c|cu|cuh|py|sh|json|jsonl|yaml|txt|csv|tsv|safetensors|svg|html|so|bin|diff)\b"
    for number, line in enumerate(text.splitlines(), 1):
        for words in re.findall(r"`([^`]+)`", line):
            for section, key in re.findall(r"(?<![\w./-])(\w+)\.(?!" + files + r")([a-z]\w*)", re.sub(r"(src|tests|tools|cod)_?/\S+", "", words)):
                if section in known and key not in known[section]:
                    yield f"{name}:{number}: there is no option '{section}.{key}'"


def missing_paths(name, text):
    """Files of the tree that a page names and that are not there. Words in capitals, as in src/nn/models/NAME.c, stand for others."""
    for number, line in enumerate(text.splitlines(), 1):
        for path in re.findall(r"(?<![\w./-])(?:src|tools|tests|configs|cmake|docs)/[\w./-]*\.(?:md|h|c|cu|cuh|py|sh|yaml|cmake|txt|svg|diff|sbatch)\b", line):
            if not re.search(r"[A-Z]{2}", path.removesuffix("CMakeLists.txt")) and not (ROOT / path).exists():
                yield f"{name}:{number}: there is no '{path}'"


def unknown_commands(name, text, known):
    """`codistill WORD` that is no command."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"(?:^|[`/ ])codistill ([a-z]\w*)(?![\w/])", line) if line.startswith("    ") else re.findall(r"`(?:[\w./-]*/)?codistill ([a-z]\w*)", line):
            if word not in known:
                yield f"{name}:{number}: there is no command 'codistill {word}'"


def literals():
    """All text in quotes of the sources, adjacent literals as one, with what printf() puts in as an ellipsis."""
    parts = []
    for folder, pattern in (("src", "*.c"), ("src", "*.cu"), ("src", "*.h"), ("tools", "*.c")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', path.read_text()):
                parts.append("".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run)))
    return re.sub(r"%[-+0-9.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z]", "…", "\n".join(parts))


def unknown_messages(text, known):
    """Messages of the first column of troubleshooting.md of which a part is in no source."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("| `"):
            continue
        for message in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
            for part in message.split("…"):
                part = part.strip(" ()':;,")
                if len(part) > 3 and part not in known:
                    yield f"troubleshooting.md:{number}: no source says '{part}'"


class Docs(unittest.TestCase):
    def test_tasks(self):
        read = "\n".join((ROOT / page).read_text() for page in READ)
        self.assertEqual(len(TASKS), 10)
        for task, name, holds in TASKS:
            with self.subTest(task=task):
                self.assertTrue((ROOT / name).is_file(), f"{task}: {name} is not there")
                self.assertIn(holds, (ROOT / name).read_text(), f"{task}: {name} does not hold it")
                self.assertIn(name, read, f"{task}: none of {', '.join(READ)} names {name}")

    def test_links(self):
        self.assertEqual([fault for page in PAGES for fault in broken_links(page, page.read_text())], [])

    def test_index(self):
        index = (ROOT / "docs/index.md").read_text()
        self.assertEqual([page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md" and f"]({page.name}" not in index], [])

    def test_options(self):
        known = sections()
        self.assertGreater(len(known), 15)
        self.assertEqual([fault for page in PAGES if page.name not in ("config.md", "bad-inputs.md")
                          for fault in unknown_options(page.name, page.read_text(), known)], [])

    def test_paths(self):
        self.assertEqual([fault for page in PAGES for fault in missing_paths(page.name, page.read_text())], [])

    def test_commands(self):
        known = set(re.findall(r'^    \{"(\w+)", "', (ROOT / "tools/main.c").read_text(), re.M))
        self.assertTrue({"train", "eval"} < known)
        self.assertEqual([fault for page in PAGES if page.name != "bad-inputs.md"
                          for fault in unknown_commands(page.name, page.read_text(), known)], [])

    def test_messages(self):
        self.assertEqual(list(unknown_messages((ROOT / "docs/troubleshooting.md").read_text(), literals())), [])

    def test_terms(self):
        terms = re.findall(r"^\| ([^|]+?) \| ", (ROOT / "docs/glossary.md").read_text(), re.M)[2:]
        self.assertGreater(len(terms), 40)
        self.assertEqual(terms, sorted(terms, key=str.lower), "terms are in the alphabet's order")
        self.assertEqual(len(terms), len({term.lower() for term in terms}), "a term stands there once")

    def test_width(self):
        self.assertEqual([f"{name}:{number}: {len(line)} columns" for name in NARROW
                          for number, line in prose((ROOT / "docs" / name).read_text()) if len(line) > MAX_COLUMNS], [])

    def test_planted(self):
        """Each check finds what is planted, and nothing in what is right."""
        page = ROOT / "docs/index.md"
        self.assertEqual(len(list(broken_links(page, "[a](nowhere.md) [b](config.md#nothing) [c](config.md#train) `[d](e.md)`"))), 2)
        self.assertEqual(len(list(unknown_options("p", "`train.rate=1` `train.rat` `train/x.h` `config.md`", sections()))), 1)
        self.assertEqual(len(list(unknown_messages("| `a sharp … b` | c |\n| `nobody … it` | c |", "\na sharp … b\n"))), 1)
        self.assertEqual(len(list(missing_paths("p", "`tools/main.c` `src/nn/models/NAME.c` tools/nothing.c"))), 1)
        self.assertEqual(len(list(unknown_commands("p", "    codistill train x\n    ./codistill trian x\nsay `codistill evil`", {"train"}))), 2)
        self.assertEqual([number for number, _ in prose("a\n    b\n| c |\n```\nd\n```\ne")], [1, 7])


if __name__ == "__main__":
    unittest.main()
