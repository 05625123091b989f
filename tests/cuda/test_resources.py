"""The resources of GPU kernels, as tools/kernel_resources.py reads them out of machine code.

usage: test_resources.py library LIBRARY BUILT USUAL  no kernel of it spills, and each fits, for all of CMake's list BUILT; a shorter one than USUAL is told
       test_resources.py launched LIBRARY FOLDER PROGRAM...  tests launch each kernel of it, by what these programs last wrote into the folder
       test_resources.py planted NVCC [OPTION]...  faults that were planted are found, and the figures are those that the compiler gives
"""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_resources  # noqa: E402

ARCHITECTURES = {80: "80", 90: "90a", 100: "100"}
EXPECTED = {
    "spilling_kernel": "local memory",
    "indexed_kernel": "local memory",
    "unbounded_kernel": "too many for a block of 1024 threads; it has no __launch_bounds__",
    "static_kernel": "4096 bytes of static shared memory",
    "sound_kernel": None,
}


def tool(*arguments):
    return subprocess.run([sys.executable, str(ROOT / "tools/kernel_resources.py"), *map(str, arguments)], capture_output=True, text=True)


def real(architectures):
    """Those of CMake's list that the library has machine code for: all but such as 100-virtual."""
    words = [word for word in architectures.split(";") if not word.endswith("-virtual")]
    return {int(re.match(r"\d+", word)[0]) for word in words}


def missing(kernels, built):
    """A line for each kernel and architecture of the list that the library has no code for, and for each that it should not have."""
    wanted, found = real(built), {}
    for kernel in kernels:
        found.setdefault(kernel.name, set()).add(kernel.arch)
    for name, has in sorted(found.items()):
        yield from (f"{name}: not for sm_{arch}" for arch in sorted(wanted - has))
        yield from (f"{name}: for sm_{arch}, which is not in '{built}'" for arch in sorted(has - wanted))
    if not found:
        yield "no kernel"


def warpgroup_products(path):
    """
    Each kernel's code for sm_90a: its products of warpgroups (SASS: HGMMA), and its waits (WARPGROUP.DEPBAR) that leave one under way and that
    leave none. Where ptxas has too few registers, it "serializes" products: it waits for each of them, and says so in a note that nobody reads.
    """
    BYTES, OPERATION, HGMMA, WARPGROUP, IS_WAIT = 16, 0x1FF, 0x1F0, 0x1C5, 1 << 47
    for elf in kernel_resources.objects(pathlib.Path(path)):
        for arch, code in kernel_resources.machine_code(elf):
            for name, _, offset, length in kernel_resources.sections(code):
                if arch != 90 or not name.startswith(".text."):
                    continue
                words = [struct.unpack_from("<QQ", code, offset + at) for at in range(0, length, BYTES)]
                waits = [high >> 8 & 0xFF for low, high in words if low & OPERATION == WARPGROUP and low & IS_WAIT]
                yield name[len(".text."):], (sum(low & OPERATION == HGMMA for low, _ in words), waits.count(1), waits.count(0))


def wrong_products(found):
    """A line for each kernel that has others than its name says: 36 steps of as many as a warp has fragments of pixels, each step under way with the next."""
    for name, seen in found:
        match = re.search(r"conv3_wgmma_kernelILi\d+ELi(\d+)E", name)
        wanted = (36 * int(match[1]), 35, 1) if match else (0, 0, 0)
        if seen != wanted:
            yield f"{name}: {seen} products of warpgroups, waits for all but one and for all, in place of {wanted}"


def library(path, built, usual):
    done = tool("--table", "--allow", HERE / "spills.txt", path)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{path} has kernels that are not sound, see above"
    found = kernel_resources.kernels(path)
    lines = list(missing(found, built))
    assert not lines, "\n".join(lines)
    print(f"{len({kernel.name for kernel in found})} kernels for each of {built}")
    if "90a" in built:
        products = list(warpgroup_products(path))
        lines = list(wrong_products(products))
        assert not lines, "\n".join(lines)
        by_warpgroups = [name for name, (count, _, _) in products if count > 0]
        assert by_warpgroups, "no kernel for sm_90a has products of warpgroups"
        for planted in (0, 0, 0), (36, 0, 36):  # it lacks them, or they are serialized
            assert len(list(wrong_products((name, planted) for name in by_warpgroups))) == len(by_warpgroups)
        print(f"{len(by_warpgroups)} kernels for sm_90a multiply by warpgroups")
    if not real(usual) <= real(built):
        print(f"this tree was configured with CMAKE_CUDA_ARCHITECTURES={built}: nothing is shown of the others of {usual}")


def unlaunched(built, launched, reasons):
    """A line for each kernel that is not launched and has no reason, and for each reason that is not needed. By readable names."""
    for name in sorted(built - launched - reasons):
        yield f"{name}: no test of ops launches it; add one, or a line to tests/cuda/unlaunched.txt"
    for name in sorted(reasons - (built - launched)):
        yield f"{name}: is launched, or is no kernel; drop its line from tests/cuda/unlaunched.txt"


def launched(path, folder, *programs):
    records = {pathlib.Path(program): pathlib.Path(folder) / f"{pathlib.Path(program).name}.txt" for program in programs}
    stale = [program.name for program, record in records.items()
             if not program.exists() or not record.exists() or record.stat().st_mtime < program.stat().st_mtime]
    if stale:
        print(f"what these launch is not known; run them first: ctest -R '^({'|'.join(stale)})$'")
        sys.exit(77)
    symbols = {symbol for record in records.values() for symbol in record.read_text().split()}
    assert "?" not in symbols, "a test program has no symbols, so nobody knows what it launches"
    built = {kernel.name for kernel in kernel_resources.kernels(path)}
    ran = {re.sub("^_ZL", "_Z", symbol) for symbol in symbols} & built  # kernels are static in the emulated library
    title = kernel_resources.readable(sorted(built))
    built, ran = {title[name] for name in built}, {title[name] for name in ran}
    lines = [line for line in (HERE / "unlaunched.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(" # " in line for line in lines), "a line of unlaunched.txt is: NAME # REASON"
    reasons = {line.partition(" # ")[0] for line in lines}
    found = list(unlaunched(built, ran, reasons))
    assert not found, "\n".join(found)
    for name in ran:  # planted: each that is launched is missed without, and needs no reason
        assert len(list(unlaunched(built, ran - {name}, reasons))) == 1 and len(list(unlaunched(built, ran, reasons | {name}))) == 1, name
    print(f"{len(ran)} of {len(built)} kernels are launched, {len(reasons)} have a reason not to be")


def compiled(nvcc, options, folder, name, *more):
    """An object file with the planted kernels, and what the compiler says of each: (registers, local bytes, shared bytes)."""
    target = folder / name
    done = subprocess.run([nvcc, *options, *more, "-c", str(HERE / "planted/kernels.cu"), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, kernel = {}, None
    for line in done.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)", line):
            kernel = (match[1], int(match[2]))
        elif match := re.search(r"(\d+) bytes stack frame", line):
            local = int(match[1])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            said[kernel] = (int(match[1]), local, int(shared[1]) if shared else 0)
    return target, said


def check_figures(path, said, architectures):
    read = {(kernel.name, kernel.arch): (kernel.registers, kernel.local, kernel.shared) for kernel in kernel_resources.kernels(path)}
    assert len(said) == len(EXPECTED) * architectures, f"the compiler speaks of {len(said)} kernels"
    assert read == said, f"read {read}, but the compiler says {said}"


def check_findings(path):
    done = tool(path)
    assert done.returncode == 1, done.stdout + done.stderr
    for kernel, problem in EXPECTED.items():
        lines = [line for line in done.stdout.splitlines() if f"{kernel}(" in line]
        if problem is None:
            assert not lines, lines
            continue
        assert len(lines) == len(ARCHITECTURES) and all(problem in line for line in lines), f"{kernel}: {lines}"


def check_allowances(path, folder):
    """An allowance spares what it names and no more, and must be needed."""
    said = {line.split(":")[0]: int(line.split(": ")[1].split()[0]) for line in tool(path).stdout.splitlines() if "indexed_kernel(" in line}
    allowed = folder / "allowed.txt"

    def lines_with(text):
        allowed.write_text(text)
        done = tool("--allow", allowed, path)
        return done, [line for line in done.stdout.splitlines() if "indexed_kernel(" in line]

    enough = [f"{kernel.split(' ', 1)[0]} {local} {kernel.split(' ', 1)[1]} # planted\n" for kernel, local in said.items()]
    assert len(enough) == len(ARCHITECTURES) and not lines_with("# a comment\n" + "".join(enough))[1]
    assert len(lines_with("".join(enough[1:]))[1]) == 1
    assert len(lines_with("".join(enough).replace(" 64 ", " 60 "))[1]) == len(ARCHITECTURES)
    done, _ = lines_with("sm_90 8 sound_kernel(float*) # needless\n")
    assert "sm_90 sound_kernel(float*): has no local memory; drop its line" in done.stdout, done.stdout
    done, _ = lines_with("sm_90 8 sound_kernel(float*)\n")
    assert done.returncode == 2 and "allowed.txt:1: a line is" in done.stderr, done


def check_architectures(path):
    """Code that is missing for one architecture, for one kernel or all, and code for one too many are found."""
    usual, kernels = "80-real;90a-real;100-real;100-virtual", list(kernel_resources.kernels(path))
    assert not list(missing(kernels, usual))
    assert list(missing([kernel for kernel in kernels if kernel.arch == 90], "90a-real")) == []
    assert len(list(missing([kernel for kernel in kernels if kernel.arch == 90], usual))) == 2 * len(EXPECTED)
    assert len(list(missing(kernels[1:], usual))) == 1
    assert len(list(missing(kernels, "90a;100"))) == len(EXPECTED)
    assert list(missing([], usual)) == ["no kernel"]


def check_messages(folder):
    cases = {"text": b"not a program\n" * 8, "damaged": b"\x7fELF" + bytes(range(256)), "empty": b"!<arch>\n"}
    for name, content in cases.items():
        (folder / name).write_bytes(content)
        done = tool(folder / name)
        assert done.returncode == 2 and name in done.stderr and "Traceback" not in done.stderr, f"{name}: {done}"
    done = tool(folder / "absent")
    assert done.returncode == 2 and "No such file" in done.stderr, done


def planted(nvcc, *options):
    code = [f"--generate-code=arch=compute_{arch},code=[sm_{arch}]" for arch in ARCHITECTURES.values()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain, said = compiled(nvcc, [*options, *code], folder, "planted.o", "-Xptxas", "-v")
        check_figures(plain, said, len(code))
        check_findings(plain)
        check_architectures(plain)
        check_allowances(plain, folder)
        subprocess.run(["ar", "rc", str(folder / "library.a"), str(plain)], check=True)
        check_figures(folder / "library.a", said, len(code))
        packed, said = compiled(nvcc, [*options, code[-1]], folder, "packed.o", "-Xptxas", "-v", "--compress-mode=size")
        check_figures(packed, said, 1)
        bare, _ = compiled(nvcc, [*options, code[-1]], folder, "bare.o", "--compress-mode=none")
        assert packed.stat().st_size < bare.stat().st_size, "the compiler has compressed nothing"
        check_messages(folder)


if __name__ == "__main__":
    {"library": library, "launched": launched, "planted": planted}[sys.argv[1]](*sys.argv[2:])
