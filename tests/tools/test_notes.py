#!/usr/bin/env python3
"""What a picture's file says beside its pixels, colour profile, EXIF and resolution, is in the upscaled file: python3 test_notes.py CODISTILL [CASE ...]"""

import struct
import sys
import zlib

from train_support import check, run_cases

W, H = 24, 16


def xyz(*values):
    return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def icc(space, tags, pcs=b"XYZ "):
    """An ICC profile (ICC.1:2001-04, section 6)."""
    at, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for name, data in tags.items():
        data += bytes(-len(data) % 4)
        table += name + struct.pack(">II", at + len(body), len(data))
        body += data
    head = struct.pack(">I4sI4s4s4s12s4s", at + len(body), b"\0\0\0\0", 0x02100000, b"prtr" if space == b"CMYK" else b"mntr", space, pcs, b"\x07\xe8\0\1\0\1" + bytes(6),
                       b"acsp")
    head += bytes(28) + xyz(0.9642, 1, 0.8249)[8:]
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))


# Red and blue swapped, so that a picture that loses it is seen to; gray with a gamma of 1.8.
SWAPPED = icc(b"RGB ", {b"wtpt": xyz(0.9642, 1, 0.8249), b"rXYZ": xyz(0.143, 0.0606, 0.7141), b"gXYZ": xyz(0.3851, 0.7169, 0.0971),
                        b"bXYZ": xyz(0.4361, 0.2225, 0.0139), b"rTRC": curve(2.2), b"gTRC": curve(2.2), b"bTRC": curve(2.2)})
GRAY = icc(b"GRAY", {b"wtpt": xyz(0.9642, 1, 0.8249), b"kTRC": curve(1.8)})


def cmyk_profile():
    """Full cyan is Lab (50, 80, 60), a red; any black is black; paper is white; all else is gray."""
    ramp, body = bytes(range(256)), b""
    for i in range(16):
        ink = [i >> shift & 1 for shift in (3, 2, 1, 0)]
        body += bytes([0, 128, 128] if ink[3] else [255, 128, 128] if not any(ink) else [128, 208, 188] if ink == [1, 0, 0, 0] else [128, 128, 128])
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + b"".join(struct.pack(">i", 65536 * (i % 4 == 0)) for i in range(9)) + ramp * 4 + body + ramp * 3
    return icc(b"CMYK", {b"wtpt": xyz(0.9642, 1, 0.8249), b"A2B0": table}, pcs=b"Lab ")


def exif(orientation, order="<"):
    """Maker, orientation, 300 pixels an inch; below it an exposure of 1/60 s and the width; behind it a thumbnail."""
    def entry(tag, kind, count, value):
        return struct.pack(order + "HHI", tag, kind, count) + (value if isinstance(value, bytes) else struct.pack(order + "I", value)).ljust(4, b"\0")

    short = struct.pack(order + "H", orientation)
    below = 8 + 2 + 6 * 12 + 4
    values = below + 2 + 2 * 12 + 4
    main = [entry(0x10F, 2, 8, values), entry(0x112, 3, 1, short), entry(0x11A, 5, 1, values + 8), entry(0x11B, 5, 1, values + 8),
            entry(0x128, 3, 1, struct.pack(order + "H", 2)), entry(0x8769, 4, 1, below)]
    behind = values + 24
    thumbnail = struct.pack(order + "H", 2) + entry(0x201, 4, 1, behind + 30) + entry(0x202, 4, 1, 4) + bytes(4) + b"\xff\xd8\xff\xd9"
    photo = [entry(0x829A, 5, 1, values + 16), entry(0xA002, 4, 1, W)]
    return ((b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + struct.pack(order + "H", 6) + b"".join(main) +
            struct.pack(order + "I", behind) + struct.pack(order + "H", 2) + b"".join(photo) + bytes(4) + b"Camera1\0" + struct.pack(order + "IIII", 300, 1, 1, 60) + thumbnail)


def tags(tiff):
    """Tag -> value of all directories of EXIF. Nothing but them: no thumbnail."""
    order, found = "<" if tiff[:2] == b"II" else ">", {}

    def walk(at):
        for i in range(struct.unpack_from(order + "H", tiff, at)[0]):
            tag, kind, count = struct.unpack_from(order + "HHI", tiff, at + 2 + 12 * i)
            (offset,) = struct.unpack_from(order + "I", tiff, at + 10 + 12 * i)
            if tag == 0x8769:
                walk(offset)
            elif kind == 2:
                found[tag] = tiff[offset:offset + count]
            elif kind == 5:
                over, under = struct.unpack_from(order + "II", tiff, offset)
                found[tag] = over / under
            else:
                (found[tag],) = struct.unpack_from(order + ("H" if kind == 3 else "I"), tiff, at + 10 + 12 * i)

    (first,) = struct.unpack_from(order + "I", tiff, 4)
    (entries,) = struct.unpack_from(order + "H", tiff, first)
    check(struct.unpack_from(order + "I", tiff, first + 2 + 12 * entries)[0] == 0, "the thumbnail is of the smaller picture")
    walk(first)
    return found


def png(*chunks, kind=2, values=3, width=W, height=H):
    rows = b"".join(b"\0" + bytes((x * 7 + y * 5 + c * 60) % 200 for x in range(width) for c in range(values)) for y in range(height))

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)) +
            b"".join(chunk(*one) for one in chunks) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def iccp(profile):
    return b"iCCP", b"name\0\0" + zlib.compress(profile)


def read_png(data):
    found, at = {"size": struct.unpack(">II", data[16:24])}, 8
    while at < len(data):
        (length,), name = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body, at = data[at + 8:at + 8 + length], at + 12 + length
        if name == b"iCCP":
            found["profile"] = zlib.decompress(body[body.index(b"\0") + 2:])
        elif name == b"eXIf":
            found["exif"] = body
        elif name == b"pHYs":
            found["dpi"] = [round(value * 0.0254, 1) for value in struct.unpack(">II", body[:8])]
        check(name not in (b"gAMA", b"cHRM"), f"{name} is written beside what it means")
    return found


def read_jpeg(data):
    found, at = {}, 2
    while data[at + 1] != 0xDA:
        length, body = struct.unpack(">H", data[at + 2:at + 4])[0], data[at + 4:]
        body = body[:length - 2]
        if data[at + 1] == 0xE0 and body[7] == 1:
            found["dpi"] = list(struct.unpack(">HH", body[8:12]))
        elif data[at + 1] == 0xE1:
            found["exif"] = body.removeprefix(b"Exif\0\0")
        elif data[at + 1] == 0xE2:
            found["profile"] = found.get("profile", b"") + body[14:]
        elif data[at + 1] in (0xC0, 0xC2):
            found["size"] = struct.unpack(">HH", body[1:5])[::-1]
        at += 2 + length
    return found


def read_webp(data):
    found, at = {}, 12
    while at < len(data):
        name, (length,) = data[at:at + 4], struct.unpack("<I", data[at + 4:at + 8])
        body, at = data[at + 8:at + 8 + length], at + 8 + length + length % 2
        found.update({"profile": body} if name == b"ICCP" else {"exif": body} if name == b"EXIF" else {})
    return found


def pixels_of(data):
    """The pixels of an RGB picture of 8 bits."""
    at, packed, before, pixels = 8, b"", bytes(3 * W), []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        packed += data[at + 8:at + 8 + length] if data[at + 4:at + 8] == b"IDAT" else b""
        at += 12 + length
    rows = zlib.decompress(packed)
    for y in range(H):
        kind, row = rows[y * (3 * W + 1)], bytearray(rows[y * (3 * W + 1) + 1:(y + 1) * (3 * W + 1)])
        for i, value in enumerate(row):
            left, up, corner = (row[i - 3], before[i], before[i - 3]) if i > 2 else (0, before[i], 0)
            near = min((left, up, corner), key=lambda one, sum=left + up - corner: abs(sum - one))
            row[i] = value + (0, left, up, (left + up) // 2, near)[kind] & 255
        pixels += zip(row[::3], row[1::3], row[2::3], strict=True)
        before = row
    return pixels


READERS = {"png": read_png, "jpg": read_jpeg, "webp": read_webp}


def tiff(order, extra, samples, photometric, pixels):
    """An uncompressed one of 8 bits in one strip. `extra` are tags with their values: bytes, or numbers below 65536."""
    entries = {256: W, 257: H, 258: bytes([8, 0] * samples) if order == "<" else bytes([0, 8] * samples), 259: 1, 262: photometric, 273: 0, 277: samples, 278: H,
               279: len(pixels), **extra}
    at, table, values = 8 + 2 + 12 * len(entries) + 4, b"", b""
    strip = at + sum(len(v) + len(v) % 2 for v in entries.values() if isinstance(v, bytes) and len(v) > 4)
    for tag, value in sorted(entries.items()):
        kind = 7 if tag == 34675 else 3 if tag == 258 else 2 if tag == 271 else 5 if tag in (282, 283) else 3 if tag == 296 else 4
        count = len(value) // {3: 2, 5: 8}.get(kind, 1) if isinstance(value, bytes) else 1
        number = struct.pack(order + ("H" if kind == 3 else "I"), strip if tag == 273 else value) if not isinstance(value, bytes) else value
        field = number.ljust(4, b"\0")
        if len(field) > 4:
            field, values = struct.pack(order + "I", at + len(values)), values + field + bytes(len(field) % 2)
        table += struct.pack(order + "HHI", tag, kind, count) + field
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(entries)) + table + bytes(4) + values + pixels


def enlarged(bench, name, ending, scale=2):
    """What the enlarged picture's file says."""
    output = f"{name}.{scale}.{ending}"
    bench.done("upscale", "bicubic", name, "-o", output, "--scale", str(scale), "--force", "--quality", "100")
    return READERS[ending](bench.read(output))


def formats(bench):
    """Each format to each: the profile as it is, EXIF upright and of the new size, as many inches as before."""
    metre = round(300 / 0.0254)
    bench.write("in.png", png(iccp(SWAPPED), (b"pHYs", struct.pack(">IIB", metre, metre, 1)), (b"eXIf", exif(6))))
    for source in ("in.png", "in.png.2.jpg", "in.png.2.webp"):
        grown = 1 if source == "in.png" else 2
        for ending in READERS:
            found = enlarged(bench, source, ending)
            check(found.get("profile") == SWAPPED, f"{source} to {ending}: another profile")
            said = tags(found["exif"])
            check(said[0x112] == 1 and said[0x10F] == b"Camera1\0" and abs(said[0x829A] - 1 / 60) < 1e-9, f"{source} to {ending}: {said}")
            check(abs(said[0x11A] - 600 * grown) < 0.1 and said[0xA002] == 2 * H * grown, f"{source} to {ending}: {said}")
            check(ending == "webp" or max(abs(dpi - 600 * grown) for dpi in found["dpi"]) < 0.1, f"{source} to {ending}: {found.get('dpi')}")
            check(ending == "webp" or found["size"] == (2 * H * grown, 2 * W * grown), f"{source} to {ending}: not upright")
    # Nothing said, nothing invented; a resolution alone reaches WebP as EXIF.
    bench.write("plain.png", png())
    for ending in READERS:
        check(not {"profile", "exif"} & enlarged(bench, "plain.png", ending).keys(), f"invented in {ending}")
    bench.write("sized.png", png((b"pHYs", struct.pack(">IIB", metre, 2 * metre, 1))))
    said = tags(enlarged(bench, "sized.png", "webp", 3)["exif"])
    check(abs(said[0x11A] - 900) < 0.1 and abs(said[0x11B] - 1800) < 0.1 and said[0x128] == 2, f"{said}")
    check(enlarged(bench, "sized.png.3.webp", "jpg", 1)["dpi"] == [900, 1800], "from WebP")


def converted(bench):
    """gAMA and gray profiles become profiles of RGB; what is sRGB gets none; HDR is refused by name, and a damaged profile is none."""
    def gamma(value):
        return b"gAMA", struct.pack(">I", round(value * 100000))

    bench.write("linear.png", png(gamma(1)))
    made = enlarged(bench, "linear.png", "jpg")["profile"]
    check(made[16:20] == b"RGB " and made[36:40] == b"acsp", f"{made[:40]}")
    bench.write("again.png", png(iccp(made)))
    check(enlarged(bench, "again.png", "webp")["profile"] == made, "the made profile is none")
    wide = (b"cHRM", struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000))
    bench.write("wide.png", png(gamma(0.45455), wide))
    check("profile" in enlarged(bench, "wide.png", "png"), "wide primaries")
    for name, chunks in (("gamma", [gamma(0.45455)]), ("srgb", [(b"sRGB", b"\0"), gamma(0.45455)]), ("cicp", [(b"cICP", bytes([1, 13, 0, 1]))]),
                         ("damaged", [iccp(b"no profile" * 20)])):
        bench.write(f"{name}.png", png(*chunks))
        check("profile" not in enlarged(bench, f"{name}.png", "png"), f"{name}: a profile")
    bench.write("gray.png", png(iccp(GRAY), kind=0, values=1))
    made = enlarged(bench, "gray.png", "png")["profile"]
    parametric = b"para" + bytes(8) + struct.pack(">i", round(1.8 * 256) * 256)
    check(made[16:20] == b"RGB " and parametric in made, "gray's curve")
    bench.write("hdr.png", png((b"cICP", bytes([9, 16, 0, 1]))))
    result = bench.run("upscale", "bicubic", "hdr.png", "-o", "hdr.jpg")
    check(result.code == 1 and "hdr.png: a PNG of high dynamic range (cICP 9, 16) is not supported; convert it to sRGB" in result.err, "HDR", result)


def from_tiff(bench):
    """A TIFF's profile, resolution and maker; CMYK is converted by its profile."""
    for order in "<>":
        pixels = bytes(x % 251 for x in range(W * H * 3))
        inch = struct.pack(order + "II", 118, 1)
        bench.write("in.tif", tiff(order, {34675: SWAPPED, 271: b"Camera1\0", 282: inch, 283: inch, 296: 3}, 3, 2, pixels))
        found = enlarged(bench, "in.tif", "png")
        check(found["profile"] == SWAPPED and tags(found["exif"])[0x10F] == b"Camera1\0", f"{found.keys()}")
        check(abs(found["dpi"][0] - 2 * 118 * 2.54) < 0.2, f"{found['dpi']}")
    inks = [(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)]
    bench.write("ink.tif", tiff("<", {34675: cmyk_profile()}, 4, 5, b"".join(bytes(inks[i * 3 // (W * H)]) for i in range(W * H))))
    bench.done("upscale", "bicubic", "ink.tif", "-o", "ink.png", "--scale", "1")
    data = bench.read("ink.png")
    check("profile" not in read_png(data), "converted, and labelled as not")
    seen = pixels_of(data)
    check(min(seen[0]) > 250 and max(seen[-1]) < 5 and seen[W * H // 2][0] > seen[W * H // 2][1] + 50, f"white is {seen[0]}, full cyan {seen[W * H // 2]}, black {seen[-1]}")


CASES = {"formats": formats, "converted": converted, "tiff": from_tiff}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
