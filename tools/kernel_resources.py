#!/usr/bin/env python3
"""What each GPU kernel of a library needs: registers, local memory, shared memory and threads; and whether that is sound.

usage: kernel_resources.py [--table] [--allow LIST] FILE...

FILE is an object file, a static library or a program that nvcc had a part in. Reads the machine code that lies in it, so that nothing
is compiled anew and nothing of the CUDA toolkit is needed but what built it. A finding is:
  local memory      spilled registers, or an array that is indexed with what only the running kernel knows
  registers         more than one block of the kernel's threads can have
  static shared     memory that the launch does not ask for: kernels use shared_memory() alone (src/cuda/warp.cuh)
LIST holds lines "sm_80 8 NAME # REASON": as many bytes of local memory as this kernel may have there. A line that is not needed is
a finding, too.
Exit code 0: none, 1: findings, 2: a file cannot be read or holds no kernels.
"""
import argparse
import collections
import ctypes
import pathlib
import struct
import subprocess
import sys

# A fat binary: a header, then entries, each with a header of its own. Kinds of entries: 1 = PTX, 2 = machine code (an ELF file).
FAT_MAGIC, MACHINE_CODE = 0xBA55ED50, 2
COMPRESSED_LZ4, COMPRESSED_ZSTD = 0x2000, 0x8000

# Attributes of kernels in the sections .nv.info: of the whole file (with the symbol that they are about), and of one kernel.
REGISTERS, FRAME_BYTES, STACK_BYTES = 0x2F, 0x11, 0x12
THREADS_AT_MOST, THREADS_EXACTLY = 0x05, 0x10
WITH_BYTES = 4  # the form of an attribute whose value is a number of bytes after it

# Of all GPUs from compute capability 8.0 on.
REGISTERS_A_BLOCK, REGISTERS_A_THREAD, LANES, GRAIN = 65536, 255, 32, 256
MOST_THREADS = 1024
RESERVED_SHARED = 1024  # what the system keeps in each block from 9.0 on; the section of static shared memory includes it

Kernel = collections.namedtuple("Kernel", "name arch registers local shared threads")


class Unreadable(Exception):
    """Ends the program with one line."""


def sections(elf):
    """(name, type, offset, bytes) of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    text = headers[names][4] if headers else 0
    for name, kind, _, _, offset, length in headers:
        begin = text + name
        yield elf[begin:elf.index(b"\0", begin)].decode(), kind, offset, length


def symbols(elf):
    """Names by index."""
    found = {name: (offset, length) for name, _, offset, length in sections(elf)}
    table, length = found[".symtab"]
    strings = found[".strtab"][0]
    for i in range(length // 24):
        begin = strings + struct.unpack_from("<I", elf, table + 24 * i)[0]
        yield elf[begin:elf.index(b"\0", begin)].decode()


def objects(path):
    """The ELF files in it: itself, or a library's members."""
    data = path.read_bytes()
    if data[:4] == b"\x7fELF":
        yield data
    elif data[:8] == b"!<arch>\n":
        at = 8
        while at + 60 <= len(data):
            length = int(data[at + 48:at + 58])
            member = data[at + 60:at + 60 + length]
            if member[:4] == b"\x7fELF":
                yield member
            at += 60 + length + length % 2
    else:
        raise Unreadable(f"{path} is neither an object file nor a library nor a program")


def expanded(payload, flags, length):
    """The payload of a compressed entry."""
    library, function = ("libzstd.so.1", "ZSTD_decompress") if flags & COMPRESSED_ZSTD else ("liblz4.so.1", "LZ4_decompress_safe")
    try:
        call = getattr(ctypes.CDLL(library), function)
    except OSError:
        raise Unreadable(f"kernels are compressed and {library} is not there; install it, or build with nvcc's --no-compress") from None
    target = ctypes.create_string_buffer(length)
    if flags & COMPRESSED_ZSTD:
        call.restype, call.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t] * 2
        got = call(target, length, payload, len(payload))
    else:
        call.restype, call.argtypes = ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        got = call(payload, target, len(payload), length)
    if got != length:
        raise Unreadable(f"{function} cannot expand a kernel's code")
    return target.raw


def machine_code(elf):
    """(architecture, ELF file) of each entry with machine code."""
    for name, _, offset, length in sections(elf):
        if name not in (".nv_fatbin", "__nv_relfatbin"):
            continue
        at, end = offset, offset + length
        while at + 16 <= end:
            magic, _, header, size = struct.unpack_from("<IHHQ", elf, at)
            if magic != FAT_MAGIC:  # padding between the parts of several object files
                at += 8
                continue
            entry, at = at + header, at + header + size
            while entry < at:
                kind, _, begin, room = struct.unpack_from("<HHIQ", elf, entry)
                (packed,) = struct.unpack_from("<I", elf, entry + 16)
                (arch,) = struct.unpack_from("<I", elf, entry + 28)
                (flags,) = struct.unpack_from("<Q", elf, entry + 40)
                payload = elf[entry + begin:entry + begin + room]
                if kind == MACHINE_CODE and flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD):
                    payload = expanded(payload[:packed], flags, struct.unpack_from("<Q", elf, entry + 56)[0])
                if kind == MACHINE_CODE:
                    yield arch, payload
                entry += begin + room


def attributes(elf, offset, length):
    """(attribute, value) of a section .nv.info."""
    end = offset + length
    while offset + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", elf, offset)
        offset += 4
        if form == WITH_BYTES:
            yield attribute, elf[offset:offset + value]
            offset += value


def kernels_of(arch, elf):
    names = list(symbols(elf))
    by_symbol = {REGISTERS: {}, FRAME_BYTES: {}, STACK_BYTES: {}}
    threads, shared = {}, {}
    for name, _, offset, length in sections(elf):
        if name == ".nv.info":
            for attribute, value in attributes(elf, offset, length):
                if attribute in by_symbol:
                    symbol, number = struct.unpack("<II", value)
                    by_symbol[attribute][names[symbol]] = number
        elif name.startswith(".nv.info."):
            kernel = name[len(".nv.info."):]
            threads[kernel] = None
            for attribute, value in attributes(elf, offset, length):
                if attribute in (THREADS_AT_MOST, THREADS_EXACTLY):
                    x, y, z = struct.unpack("<III", value)
                    threads[kernel] = x * y * z
        elif name.startswith(".nv.shared.") and not name.startswith(".nv.shared.reserved"):
            shared[name[len(".nv.shared."):]] = length - (RESERVED_SHARED if arch >= 90 else 0)
    for kernel, most in threads.items():
        if kernel not in by_symbol[REGISTERS] or kernel not in by_symbol[FRAME_BYTES]:
            raise Unreadable(f"the code of {kernel} for sm_{arch} says nothing of its registers: this form of machine code is not known")
        # The stack of a kernel has its own frame and those of the functions that it calls.
        local = max(by_symbol[FRAME_BYTES][kernel], by_symbol[STACK_BYTES].get(kernel, 0))
        yield Kernel(kernel, arch, by_symbol[REGISTERS][kernel], local, max(shared.get(kernel, 0), 0), most)


def kernels(path):
    """Every kernel in the file, for each architecture that there is code for."""
    try:
        found = [kernel for elf in objects(pathlib.Path(path)) for arch, code in machine_code(elf) for kernel in kernels_of(arch, code)]
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise Unreadable(f"{path} is damaged or of a form that is not known ({type(error).__name__}: {error})") from None
    if not found:
        raise Unreadable(f"{path} holds no machine code of kernels")
    return found


def blocks_at_a_time(kernel):
    """How many blocks of it a multiprocessor's registers have room for; registers are given to warps in grains."""
    warps = -(-(kernel.threads or MOST_THREADS) // LANES)
    return REGISTERS_A_BLOCK // (-(-kernel.registers * LANES // GRAIN) * GRAIN * warps)


def problems(kernel):
    if kernel.local:
        yield f"{kernel.local} bytes of local memory a thread: registers spill, or an array cannot lie in registers"
    if kernel.registers > REGISTERS_A_THREAD or blocks_at_a_time(kernel) < 1:
        bound = f"its {kernel.threads} threads" if kernel.threads else f"{MOST_THREADS} threads; it has no __launch_bounds__"
        yield f"{kernel.registers} registers a thread are too many for a block of {bound}"
    if kernel.shared:
        yield f"{kernel.shared} bytes of static shared memory, which the launch does not ask for"


def allowances(path):
    """Bytes of local memory by (architecture, kernel)."""
    allowed = {}
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines() if path else (), 1):
        entry, _, reason = line.partition(" # ")
        words = entry.split(None, 2)
        if not line or line.startswith("#"):
            continue
        if len(words) != 3 or not words[0].startswith("sm_") or not words[0][3:].isdigit() or not words[1].isdigit() or not reason.strip():
            raise Unreadable(f'{path}:{number}: a line is "sm_80 8 NAME # REASON"')
        allowed[int(words[0][3:]), words[2].strip()] = int(words[1])
    return allowed


def findings(found, titles, allowed):
    """A line for each problem, and for each allowance that nothing needs."""
    local = {(kernel.arch, titles[kernel.name]): kernel.local for kernel in found}
    for kernel in found:
        spared = 0 < kernel.local <= allowed.get((kernel.arch, titles[kernel.name]), 0)
        for problem in problems(kernel._replace(local=0) if spared else kernel):
            yield f"sm_{kernel.arch} {titles[kernel.name]}: {problem}"
    for arch, title in allowed:
        if any(kernel.arch == arch for kernel in found) and local.get((arch, title), 0) == 0:
            yield f"sm_{arch} {title}: has no local memory; drop its line from the allowances"


def readable(names):
    """Demangled where c++filt is there."""
    try:
        lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
        return dict(zip(names, lines))
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in names}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="prints every kernel")
    parser.add_argument("--allow", metavar="LIST", help="allowances")
    parser.add_argument("files", metavar="FILE", nargs="+")
    arguments = parser.parse_args(argv)
    try:
        found = [kernel for path in arguments.files for kernel in kernels(path)]
        allowed = allowances(arguments.allow)
    except Unreadable as error:
        print(f"kernel_resources: {error}", file=sys.stderr)
        return 2
    titles = readable(sorted({kernel.name for kernel in found}))
    if arguments.table:
        print(f"{'arch':>6} {'registers':>9} {'local':>6} {'static':>6} {'threads':>7} {'blocks':>6}  kernel")
        for kernel in sorted(found, key=lambda k: (k.arch, titles[k.name])):
            print(f"sm_{kernel.arch:<3} {kernel.registers:9} {kernel.local:6} {kernel.shared:6} {kernel.threads or '-':>7} "
                  f"{blocks_at_a_time(kernel):6}  {titles[kernel.name]}")
    bad = sorted(findings(found, titles, allowed))
    for line in bad:
        print(line)
    archs = sorted({kernel.arch for kernel in found})
    most = max(kernel.registers for kernel in found)
    print(f"kernel_resources: {len(titles)} kernels for {', '.join(f'sm_{arch}' for arch in archs)}, at most {most} registers, {len(bad)} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
