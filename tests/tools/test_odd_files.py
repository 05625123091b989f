#!/usr/bin/env python3
"""A table of pictures in all layouts that their formats have, made here, each with the right pixels or the right refusal:
python3 test_odd_files.py CODISTILL [CASE ...]"""

import os
import struct
import sys
import zlib

from train_support import check, check_count, run_cases

W, H = 21, 18  # neither is a multiple of a tile's side
TOP = {1: 1, 2: 3, 4: 15, 8: 255, 16: 65535}


def value(x, y, c, bits):
    """Channel c of a pixel; the last of two or four is alpha."""
    return (x * 2741 + y * 977 + c * 18000 + 40) * TOP[bits] // 131072 if bits > 4 else (x + 2 * y + c) % (TOP[bits] + 1)


def picture(channels, bits):
    return [[tuple(value(x, y, c, bits) for c in range(channels)) for x in range(W)] for y in range(H)]


def turned(rows, orientation):
    """What is seen of rows that are stored with an EXIF orientation."""
    if orientation > 4:
        rows = [list(column) for column in zip(*rows, strict=True)]
    if orientation in (2, 3, 6, 7):
        rows = [row[::-1] for row in rows]
    if orientation in (3, 4, 7, 8):
        rows = rows[::-1]
    return rows


def shown(rows, bits, opaque=True):
    """Gray, gray and alpha, RGB or RGBA as RGB or RGBA of 8 or 16 bits."""
    def one(pixel):
        scaled = tuple(v * 255 // TOP[bits] if bits < 8 else v for v in pixel)
        return {1: scaled[:1] * 3, 2: scaled[:1] * 3 + scaled[1:], 3: scaled, 4: scaled}[len(pixel)]

    return [[one(pixel) for pixel in row] for row in rows]


# PNG (ISO/IEC 15948)


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def packed(row, bits):
    """A row's values, most significant first."""
    values = [v for pixel in row for v in pixel]
    if bits == 16:
        return struct.pack(f">{len(values)}H", *values)
    step = 8 // bits
    values += [0] * (-len(values) % step)
    return bytes(sum(v << (8 - bits * (i + 1)) for i, v in enumerate(values[at:at + step])) for at in range(0, len(values), step))


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def png(rows, bits, kind, *chunks, interlaced=False):
    passes = [[row[x::dx] for row in rows[y::dy]] for x, y, dx, dy in PASSES] if interlaced else [rows]
    data = b"".join(b"\0" + packed(row, bits) for one in passes for row in one if row)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), bits, kind, 0, 0, interlaced)) +
            b"".join(chunk(*c) for c in chunks) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def exif(orientation):
    return b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">HH", orientation, 0) + bytes(4)


def read_png(data):
    """Rows of pixels, and bits: of RGB and RGBA alone, as results are."""
    at, body = 8, b""
    width, height, bits, kind = struct.unpack(">IIBB", data[16:26])
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        body += data[at + 8:at + 8 + length] if data[at + 4:at + 8] == b"IDAT" else b""
        at += 12 + length
    channels = {2: 3, 6: 4}[kind]
    pixel = channels * bits // 8
    data, size, before, rows = zlib.decompress(body), pixel * width, bytes(pixel * width), []
    for y in range(height):
        filtered, row = data[y * (size + 1)], bytearray(data[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for i, v in enumerate(row):
            left, up, corner = (row[i - pixel], before[i], before[i - pixel]) if i >= pixel else (0, before[i], 0)
            near = min((left, up, corner), key=lambda one, sum=left + up - corner: abs(sum - one))
            row[i] = v + (0, left, up, (left + up) // 2, near)[filtered] & 255
        values = row if bits == 8 else struct.unpack(f">{len(row) // 2}H", row)
        rows.append([tuple(values[x:x + channels]) for x in range(0, len(values), channels)])
        before = row
    return rows, bits


# TIFF (Adobe 1992, revision 6.0), uncompressed


def tiff(rows, bits, order="<", big=False, tile=0, strip=H, planes=1, extra=None):
    """`extra`: more tags, or other values of them, as lists of 16-bit numbers; `tile` is the side of tiles, 0 = strips of `strip` rows."""
    samples = len(rows[0][0])
    kind = {8: "B", 16: "H"}[bits]

    def piece(x, y, width, height, plane):
        block = [[rows[min(j, H - 1)][min(i, W - 1)] for i in range(x, x + width)] for j in range(y, y + height)]
        values = [v for row in block for p in row for v in (p if plane is None else p[plane:plane + 1])]
        return struct.pack(f"{order}{len(values)}{kind}", *values)

    places = ([(x, y, tile, tile) for y in range(0, H, tile) for x in range(0, W, tile)] if tile else
              [(0, y, W, min(strip, H - y)) for y in range(0, H, strip)])
    pieces = [piece(*place, plane) for plane in ([None] if planes == 1 else range(samples)) for place in places]
    sizes = [len(p) for p in pieces]
    tags = {256: [W], 257: [H], 258: [bits] * samples, 259: [1], 262: [2 if samples > 2 else 1], 277: [samples], 284: [planes],
            **({322: [tile], 323: [tile], 324: None, 325: sizes} if tile else {273: None, 278: [strip], 279: sizes}),
            **({338: [2]} if samples in (2, 4) else {}), **(extra or {})}
    head, field = (16, "Q") if big else (8, "I")
    entry = 20 if big else 12
    end = head + (8 if big else 2) + entry * len(tags) + (8 if big else 4)
    data = end + sum(4 * len(v or sizes) for v in tags.values())
    offsets = [data + sum(sizes[:i]) for i in range(len(sizes))]
    table, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        short = tag not in (273, 279, 324, 325)
        body = struct.pack(f"{order}{len(numbers or offsets)}{'H' if short else 'I'}", *(numbers or offsets))
        if len(body) > struct.calcsize(field):
            body, values = struct.pack(order + field, end + len(values)), values + body + bytes(-len(body) % 4)
        table += struct.pack(order + "HH" + field, tag, 3 if short else 4, len(numbers or offsets)) + body.ljust(struct.calcsize(field), b"\0")
    start = struct.pack(order + "2sHHHQ" if big else order + "2sHI", {"<": b"II", ">": b"MM"}[order], *((43, 8, 0, 16) if big else (42, 8)))
    return (start + struct.pack(order + ("Q" if big else "H"), len(tags)) + table + struct.pack(order + field, 0) + values).ljust(data, b"\0") + b"".join(pieces)


def bmp(rows, down=False):
    """24 bits a pixel, rows from the bottom up or from the top down."""
    body = b"".join(b"".join(bytes(p[::-1]) for p in row).ljust((3 * W + 3) // 4 * 4, b"\0") for row in (rows if down else rows[::-1]))
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, W, -H if down else H, 1, 24, 0, len(body), 0, 0, 0, 0) + body


def table():
    """Name -> the file's bytes, its rows and bits as they should be seen, or why it is refused."""
    files = {}
    colours = {0: 1, 2: 3, 4: 2, 6: 4}
    for kind, depths in ((0, (1, 2, 4, 8, 16)), (2, (8, 16)), (4, (8, 16)), (6, (8, 16))):
        for bits in depths:
            for interlaced in (False, True):
                rows = picture(colours[kind], bits)
                name = f"png_{kind}_{bits}{'_interlaced' if interlaced else ''}"
                files[name + ".png"] = png(rows, bits, kind, interlaced=interlaced), shown(rows, bits), max(bits, 8)
                if kind in (0, 2):
                    key = rows[3][5]
                    seen = [[p + ((0,) if rows[y][x] == key else (TOP[max(bits, 8)],)) for x, p in enumerate(row)] for y, row in enumerate(shown(rows, bits))]
                    files[name + "_key.png"] = png(rows, bits, kind, (b"tRNS", struct.pack(f">{len(key)}H", *key)), interlaced=interlaced), seen, max(bits, 8)
    for bits in (1, 2, 4, 8):
        rows = picture(1, bits)
        palette = [(i * 37 % 256, i * 91 % 256, 255 - i) for i in range(TOP[bits] + 1)]
        plte = b"PLTE", b"".join(map(bytes, palette))
        files[f"png_palette_{bits}.png"] = png(rows, bits, 3, plte), [[palette[p[0]] for p in row] for row in rows], 8
        seen = [[(*palette[p[0]], 70 if p[0] == 1 else 255 if p[0] else 0) for p in row] for row in rows]
        files[f"png_palette_{bits}_alpha.png"] = png(rows, bits, 3, plte, (b"tRNS", b"\0\x46")), seen, 8
    rows = picture(3, 8)
    for orientation in range(1, 9):
        files[f"png_turned_{orientation}.png"] = png(rows, 8, 2, exif(orientation)), turned(rows, orientation), 8
        files[f"tiff_turned_{orientation}.tif"] = tiff(rows, 8, extra={274: [orientation]}), turned(rows, orientation), 8
    layouts = {"strip": {}, "strips": {"strip": 5}, "tiles": {"tile": 16}}
    for channels in (1, 2, 3, 4):
        for bits in (8, 16):
            rows = picture(channels, bits)
            for layout, how in layouts.items():
                for planes in (1, 2):
                    for order in "<>":
                        files[f"tiff_{channels}_{bits}_{layout}_{planes}_{'le' if order == '<' else 'be'}.tif"] = (
                            tiff(rows, bits, order, planes=planes, **how), shown(rows, bits), bits)
                files[f"tiff_{channels}_{bits}_{layout}_big.tif"] = tiff(rows, bits, big=True, **how), shown(rows, bits), bits
            if channels == 1:
                files[f"tiff_white_{bits}.tif"] = tiff(rows, bits, extra={262: [0]}), shown([[(TOP[bits] - p[0],) for p in row] for row in rows], bits), bits
    rows = picture(3, 8)
    files["up.bmp"] = bmp(rows), rows, 8
    files["down.bmp"] = bmp(rows, down=True), rows, 8
    return files


REFUSED = {  # name -> its bytes, and words of the refusal
    "signed.tif": (lambda: tiff(picture(1, 16), 16, extra={339: [2]}), "16-bit samples that are signed"),
    "half_floats.tif": (lambda: tiff(picture(3, 16), 16, extra={339: [3, 3, 3]}), "16-bit samples that are floats"),
    "palette16.tif": (lambda: tiff(picture(1, 16), 16, extra={262: [3], 320: list(range(65536)) * 3}), "neither gray nor RGB"),
    "palette_lost.tif": (lambda: tiff(picture(1, 8), 8, extra={262: [3]}), "lacks the colours of its palette"),
    "palette_lost_big.tif": (lambda: tiff(picture(1, 8), 8, ">", big=True, extra={262: [3]}), "lacks the colours of its palette"),
    "palette_short.tif": (lambda: tiff(picture(1, 16), 16, extra={262: [3], 320: [0] * 768}), "TIFF"),
    "palette_alpha.tif": (lambda: tiff(picture(2, 8), 8, extra={262: [3], 320: [i * 85 for i in range(3 * 256)]}), "neither gray nor RGB"),
    "cmyk16.tif": (lambda: tiff(picture(4, 16), 16, extra={262: [5], 338: [0]}), "neither gray nor RGB"),
    "moving.png": (lambda: png(picture(3, 8), 8, 2, (b"acTL", struct.pack(">II", 2, 0))), "moving pictures"),
    "hdr.png": (lambda: png(picture(3, 8), 8, 2, (b"cICP", bytes([9, 18, 0, 1]))), "high dynamic range"),
    "claims.png": (lambda: png(picture(3, 8), 8, 2)[:33] + struct.pack(">I", 0x3f3f3f1a) + b"eXIf" + bytes(40), "damaged PNG: the file ends too early"),
    "cut.png": (lambda: png(picture(3, 8), 8, 2)[:-40], "damaged PNG"),
    "cut_tiff.tif": (lambda: tiff(picture(3, 8), 8)[:-40], "damaged TIFF"),
    "short.bmp": (lambda: bmp(picture(3, 8))[:-40], "BMP"),
    "empty.png": (lambda: b"", "empty"),
    "text.png": (lambda: b"hello\n", "text.png"),
}


def pixels(bench):
    """Enlarged once, every file gives the pixels that it stores."""
    files = table()
    check_count("pictures that give the pixels that they store", len(files))
    for name, (data, _, _) in files.items():
        bench.write(f"in/{name}", data)
    bench.done("upscale", "bicubic", "in", "-o", "out", "--scale", "1", "--quiet")
    for name, (_, rows, bits) in files.items():
        found, depth = read_png(bench.read("out", name.rsplit(".", 1)[0] + ".png"))
        check(depth == bits and len(found) == len(rows) and len(found[0]) == len(rows[0]), f"{name}: {len(found[0])}x{len(found)} of {depth} bits")
        for y, (row, right) in enumerate(zip(found, rows, strict=True)):
            check(row == [tuple(p) for p in right], f"{name}, row {y}: {row[:3]}, not {right[:3]}")


def refusals(bench):
    """What cannot be read as it is gets refused by name, and keeps no other from being read."""
    check_count("pictures that are refused", len(REFUSED))
    for name, (make, _) in REFUSED.items():
        bench.write(f"in/{name}", make())
    bench.write("in/good.png", png(picture(3, 8), 8, 2))
    result = bench.run("upscale", "bicubic", "in", "-o", "out", "--scale", "1")
    check(result.code == 1 and os.listdir(bench.path("out")) == ["good.png"], "something else was written", result)
    for name, (_, words) in REFUSED.items():
        check(any(f"in/{name}:" in line and words in line for line in result.err.splitlines()), f"{name}: nobody says '{words}'", result)


CASES = {"pixels": pixels, "refusals": refusals}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
