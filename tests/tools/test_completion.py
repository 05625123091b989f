#!/usr/bin/env python3
"""Completion in real shells, each on a terminal of its own: python3 test_completion.py CODISTILL SHELL

Exits with 77 where there is no such shell.
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

# Stands for the program: it completes as that does, and says otherwise which words it was given.
PROGRAM = """#!/bin/sh
[ "$1" != --complete ] || exec '{program}' "$@"
printf '\\nGOT'
printf '<%s>' "$@"
printf 'END\\n'
"""
STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             ["bind 'set show-all-if-ambiguous on'", "bind 'set bell-style none'", "bind 'set completion-query-items 0'", "bind 'set page-completions off'",
              "bind 'set enable-bracketed-paste off'", "source ./script"]),
    "zsh": (["zsh", "-f", "-i"], ["autoload -Uz compinit && compinit -u -D", "LISTMAX=100000; zle_highlight=(none)", "unset zle_bracketed_paste", "source ./script"]),
    "fish": (["fish", "--no-config", "-i"], ["set -g fish_greeting", "function fish_prompt; echo '$ '; end", "source ./script"]),
}


class Shell:
    """An interactive shell; ends with its context."""

    def __init__(self, name, folder, program):
        self.name, self.seen = name, ""
        (folder / "bin").mkdir()
        (folder / "bin/codistill").write_text(PROGRAM.format(program=program))
        (folder / "bin/codistill").chmod(0o755)
        (folder / "script").write_text(subprocess.run([program, "completion", name], capture_output=True, text=True, check=True).stdout)
        command, lines = STARTS[name]
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 500, 200, 0, 0))
            os.chdir(folder)
            env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "TERM": "xterm", "LC_ALL": "C.UTF-8", "PS1": "$ "}
            os.execvpe(command[0], command, env)
        for line in lines:
            self.send(line + "\r")
        self.send("echo rea''dy\r")
        self.wait("ready")

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)

    def send(self, text):
        os.write(self.terminal, text.encode())

    def wait(self, pattern, timeout_s=10):
        """Reads until this has been printed. @return the match"""
        end = time.monotonic() + timeout_s
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"{self.name}: {pattern!r} does not come; there came:\n{self.seen}"
            with contextlib.suppress(OSError):
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", os.read(self.terminal, 65536).decode(errors="replace"))
        return found

    def given(self, line):
        """The words that a command gets when Enter follows on these keys."""
        self.seen = ""
        self.send(f"codistill {line}\r")
        return re.findall("<(.*?)>", self.wait("GOT(.*?)END")[1])

    def offers(self, line, *words):
        """The list for this line has all these words."""
        self.seen = ""
        self.send(f"codistill {line}\t\t")
        for word in words:
            self.wait(r"[\s=]" + re.escape(word) + r"\s")
        self.send("\x15\r")


# What is typed, with Tab where it is pressed, and the words that the command gets. " x" shows whether a space followed.
TYPED = [
    ("upsc\t x", ["upscale", "x"]),
    ("upscale --outs\t2", ["upscale", "--outscale", "2"]),
    ("upscale --device cu\t x", ["upscale", "--device", "cuda", "x"]),
    ("upscale --device=cu\t x", ["upscale", "--device=cuda", "x"]),
    ("upscale --format we\t x", ["upscale", "--format", "webp", "x"]),
    ("upscale sr-x4-\t x", ["upscale", "sr-x4-perceptual", "x"]),
    ("upscale -n bic\t x", ["upscale", "-n", "bicubic", "x"]),
    ("upscale pic\tone\t x", ["upscale", "pictures/one.png", "x"]),
    ("upscale bicubic -o pic\tone\t x", ["upscale", "bicubic", "-o", "pictures/one.png", "x"]),
    ("eval --data=pic\tone\t x", ["eval", "--data=pictures/one.png", "x"]),
    ("eval --metrics psnr,lp\t x", ["eval", "--metrics", "psnr,lpips", "x"]),
    ("train on\t x", ["train", "only.yaml", "x"]),
    ("train my\ta\t x", ["train", "my configs/a.yaml", "x"]),
    ("train only.yaml train.ste\t100", ["train", "only.yaml", "train.steps=100"]),
    ("train train.strategy=loc\t x", ["train", "train.strategy=local_sgd", "x"]),
    ("train model.name=comp\t x", ["train", "model.name=compact", "x"]),
    ("train train.deterministic=tr\t x", ["train", "train.deterministic=true", "x"]),
    ("train model.init=sr-x4-\t x", ["train", "model.init=sr-x4-perceptual", "x"]),
    ("plan only.yaml data.path=pic\tone\t x", ["plan", "only.yaml", "data.path=pictures/one.png", "x"]),
    ("compare only.yaml --strategies single,mod\t x", ["compare", "only.yaml", "--strategies", "single,model_parallel", "x"]),
    ("bench ste\t--rec\t real\t x", ["bench", "step", "--recipe", "real_esrgan", "x"]),
    ("completion zs\t x", ["completion", "zsh", "x"]),
]


def words(program):
    """What the program offers is what its help and its lists say."""
    def printed(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()

    def offered(*line):
        return [word.split("\t")[0] for word in printed("--complete", *line)]

    def told(*command):
        return [line.strip().split("\t") for line in printed(*command, "--help", "--unwrapped") if "\t" in line]

    commands = [term for term, _ in told() if not term.startswith("-")]
    assert offered("") == [*commands, "--help", "--version"] and len(commands) > 14, offered("")
    benches = [term for term, _ in told("bench")]
    assert offered("bench", "") == [*benches, "--help"] and len(benches) > 9, offered("bench", "")
    files = 0
    for command in [*([name] for name in commands if name != "bench"), *(["bench", name] for name in benches)]:
        listed = [row.split("\t")[0] for row in printed(*command, "--list-options")]
        assert set(listed) == {word for word in offered(*command, "--") if word.startswith("--")}, f"{command}: {offered(*command, '--')}, {listed}"
        for term, *_ in told(*command):
            if term.startswith("-") and term.split()[-1] in ("FILE", "DIR", "PATH", "F", "IN", "OUT", "D", "MODEL") and term not in ("--format F", "--batch-fraction F"):
                option = re.search(r"--[\w-]+", term)[0]
                values = offered(*command, option, "")
                assert values and (term.endswith(" D") or "MODEL" in term or values == [":files"]), f"{command} {term}: {values}"
                files += 1
    assert files > 24, files
    lines = printed("config", "--unwrapped")
    keys = {match[1]: match[2] for line in lines if (match := re.match(r"  (\S+): .*  \((.*)\)$", line))}
    assert len(keys) > 150 and {f"{key}=" for key in keys} == set(offered("train", "a.yaml", "")) - {":files"}
    fixed = [key for key, right in keys.items() if right == "true or false" or right.startswith("one of: ")]
    for key in fixed[::15]:
        right = {"true", "false"} if keys[key] == "true or false" else {word for word in keys[key][8:].split(", ") if "(" not in word and not word.startswith("k from")}
        values = {word.removeprefix(f"{key}=") for word in offered("data", f"{key}=")}
        assert values >= right and ":files" not in values, f"{key}: {values}, not {right}"
    assert offered("train", "train.backend=") >= ["train.backend=auto", "train.backend=cpu", "train.backend=ref"]


def main(program, name):
    if name == "words":
        words(program)
    elif shutil.which(name) is None:
        print(f"there is no {name}")
        return 77
    else:
        with tempfile.TemporaryDirectory() as place, contextlib.closing(Shell(name, pathlib.Path(place), program)) as shell:
            for path in ("pictures/one.png", "my configs/a.yaml", "only.yaml"):
                (pathlib.Path(place) / path).parent.mkdir(exist_ok=True)
                (pathlib.Path(place) / path).touch()
            for line, right in TYPED:
                given = [word.rstrip("/") for word in shell.given(line)]
                assert given == right, f"{name}: {line!r} gives {given}, not {right}"
            shell.offers("", "train", "upscale", "completion")
            shell.offers("export sr-", "sr-x4", "sr-x4-perceptual")
            shell.offers("train train.st", "train.steps=", "train.strategy=")
            shell.offers("train only.yaml train.recipe=", "supervised", "real_esrgan")
            shell.offers("train ", "only.yaml", "pictures/", "train.steps=")
    print(f"ok    {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2]))
