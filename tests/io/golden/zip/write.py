"""Writes the archives that test_zip.c and the fuzz target zip read, by Python's zipfile; model.zip has NIQE's model.

ZIP64 fields, which it writes for huge files alone, are put in by hand."""
import pathlib
import struct
import zipfile

HERE = pathlib.Path(__file__).parent
DATE = (2026, 1, 1, 0, 0, 0)


def write(name, entries, method=zipfile.ZIP_STORED, comment=b""):
    with zipfile.ZipFile(HERE / name, "w") as archive:
        for entry, data in entries:
            archive.writestr(zipfile.ZipInfo(entry, DATE), data, compress_type=method)
        archive.comment = comment


def write_large(name, entry, data):
    """One stored file whose sizes and place, and the list's, are told by ZIP64 fields alone."""
    crc, entry = zipfile.crc32(data), entry.encode()
    none = 0xFFFFFFFF
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, crc, none, none, len(entry), 20)
    local += entry + struct.pack("<HHQQ", 1, 16, len(data), len(data)) + data
    extra = struct.pack("<HHI", 9, 4, 0) + struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, crc, none, none, len(entry), len(extra), 0, 0, 0, 0, none)
    central += entry + extra
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(central), len(local))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(local) + len(central), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, none, none, 0)
    (HERE / name).write_bytes(local + central + end64 + locator + end)


def array(shape, values):
    """A .npy file, as numpy.savez() writes it."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}d", *values)


write("stored.zip", [("b/data.bin", bytes(range(256))), ("a.txt", b"hello"), ("empty", b"")], comment=b"a comment PK\5\6 in it")
write("compressed.zip", [("a.txt", b"hello" * 100)], zipfile.ZIP_DEFLATED)
write("twice.zip", [("a.txt", b"one"), ("a.txt", b"two")])
write("none.zip", [])
write_large("large.zip", "archive/data.pkl", b"sixty-four bits")
write("model.zip",
      [("mu_pris_param.npy", array((1, 36), [i / 8 for i in range(36)])),
       ("cov_pris_param.npy", array((36, 36), [float(i % 37 == 0) for i in range(36 * 36)]))])
