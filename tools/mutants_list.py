"""The list of mutants, tests/mutants.txt: reading it, choosing it, and what becomes of a line that holds one. tools/mutants.py does the rest."""
import collections
import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutants.txt"

Mutant = collections.namedtuple("Mutant", "number file original mutated")

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
