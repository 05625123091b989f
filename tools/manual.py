#!/usr/bin/env python3
"""Writes manual pages from what the command says of itself: its help, its options, and the options of a configuration.

usage: manual.py CODISTILL FOLDER

FOLDER receives man1/codistill.1, man1/codistill-COMMAND.1 and man5/codistill.5 (a configuration).
"""
import pathlib
import re
import subprocess
import sys


def said(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"manual: `{' '.join([program, *arguments])}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def options_of(program, *command):
    """[(name, letter, takes a value, choices)] of a command."""
    rows = [line.split("\t") for line in said(program, *command, "--list-options").splitlines()]
    return [(name, letter.strip("-") and letter, kind == "value", [] if choices == "-" else choices.split("|")) for name, letter, kind, choices in rows]


def config_options(program):
    """[(section, its help, [(key, default, what is right, help)])] of a configuration."""
    sections = []
    for line in said(program, "config", "--unwrapped").splitlines():
        if head := re.match(r"^(\S.*?): (.*)$", line):
            sections.append((head[1], head[2], []))
        elif option := re.match(r"^  (\S+): (.*)  \((.*)\)$", line):
            sections[-1][2].append([option[1], option[2], option[3], ""])
        elif line.startswith("      ") and sections and sections[-1][2]:
            sections[-1][2][-1][3] += (" " if sections[-1][2][-1][3] else "") + line.strip()
        elif line.strip() and sections:
            sections[-1] = (sections[-1][0], sections[-1][1] + " " + line.strip(), sections[-1][2])
    return sections


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def page(name, section, what, synopsis, body):
    return (f".TH {name.upper()} {section} \"\" Codistill \"Codistill\"\n.SH NAME\n{escaped(name)} \\- {escaped(what)}\n"
            f".SH SYNOPSIS\n.nf\n{escaped(synopsis)}\n.fi\n{body}")


def paragraphs(text):
    """A help's text (tools/help.h): each line is a paragraph, and tabs separate terms from what is said of them."""
    out = []
    for line in text.strip("\n").split("\n"):
        *terms, words = (escaped(cell.strip()) for cell in line.split("\t"))
        if len(terms) == 2:  # a table in what is said of an option
            out += [".RS", ".TP", f".B {terms[1]}", words, ".RE"]
        elif terms or line.startswith("  --"):
            out += [".TP", f".B {terms[0]}", words] if terms else [".TP", f".B {words}"]
        else:
            out += [".PP", *([words] if words else [])]
    return "\n".join(out) + "\n"


def help_of(program, *command):
    """(usage, the rest) of a command's help, which is not broken into lines."""
    usage, _, rest = said(program, *command, "--help", "--unwrapped").partition("\n\n")
    return "\n".join(line.strip() for line in usage.removeprefix("usage: ").split("\n")), rest


def command_page(program, command, what):
    """Of one command: its help as it prints it, and what its option tables hold beyond that."""
    usage, rest = help_of(program, *command)
    body = ".SH DESCRIPTION\n" + paragraphs(rest)
    told = set(re.findall(r"--[\w-]+", usage + rest)) | {"--help"}
    further = [option for option in options_of(program, *command) if option[0] not in told] if command != ("bench",) else []
    if further:
        body += ".SH FURTHER OPTIONS\n" + "".join(f".TP\n.B {escaped(name)}\n{escaped(', '.join(choices) or 'see the source')}\n"
                                                  for name, _, _, choices in further)
    body += ".SH SEE ALSO\n.BR codistill (1),\n.BR codistill (5)\n"
    return page("codistill-" + "-".join(command), 1, what, usage, body)


def main_page(program, commands):
    usage, rest = help_of(program)
    others = ",\n".join(f".BR codistill\\-{name} (1)" for name, _ in commands)
    return page("codistill", 1, "train networks together on machines joined by slow links", usage,
                ".SH DESCRIPTION\n" + paragraphs(rest) + f".SH SEE ALSO\n{others},\n.BR codistill (5)\n")


def config_page(sections):
    body = (".SH DESCRIPTION\nA configuration is a YAML file with the sections below. On the command line SECTION.KEY=VALUE takes an option over "
            "it; an option that is in neither has its default.\n")
    for name, what, options in sections:
        body += f".SH {escaped(name.upper() if ' ' in name else name)}\n{escaped(what)}\n"
        for key, default, right, help_text in options:
            said_of = escaped(f" (default: {default}; {right})").replace('"', "\\(dq")
            body += f".TP\n.BR {escaped(key)} \"{said_of}\"\n{escaped(help_text)}\n"
    return page("codistill", 5, "configuration of a run", "codistill train CONFIG.yaml [SECTION.KEY=VALUE ...]", body + ".SH SEE ALSO\n.BR codistill (1)\n")


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__.strip())
    program, folder = argv[1], pathlib.Path(argv[2])
    commands = re.findall(r"^  (\w+)\t(.*)$", help_of(program)[1], re.MULTILINE)
    benches = dict(re.findall(r"^  (\w+)\t(.*)$", help_of(program, "bench")[1], re.MULTILINE))
    sections = config_options(program)
    for part in ("man1", "man5"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "man1/codistill.1").write_text(main_page(program, commands))
    for name, what in commands:
        (folder / f"man1/codistill-{name}.1").write_text(command_page(program, (name,), what))
    for name, what in benches.items():
        (folder / f"man1/codistill-bench-{name}.1").write_text(command_page(program, ("bench", name), what))
    (folder / "man5/codistill.5").write_text(config_page(sections))


if __name__ == "__main__":
    main(sys.argv)
