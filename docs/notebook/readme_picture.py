#!/usr/bin/env python3
"""The picture at the top of README.md: one window of a sample of tools/demo.sh, from each of its four pictures.

usage: readme_picture.py SAMPLE.png X Y WIDTH HEIGHT OUT.png    then: cwebp -q 88 OUT.png -o docs/readme.webp

SAMPLE.png is in runs/sr-demo/samples: low (enlarged), bicubic, ours, truth side by side, 8 pixels apart. X and Y are in one of these.
"""
import struct
import sys
import zlib

GAP = 8


def read(path):
    """(width, rows) of an RGB picture of 8 bits that is not interlaced."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            if form != [8, 2, 0, 0, 0]:
                sys.exit(f"{path} is no RGB picture of 8 bits")
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride, rows, above = zlib.decompress(packed), 3 * width, [], bytes(3 * width)
    for y in range(height):
        filtered, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left, up, corner = row[i - 3] if i >= 3 else 0, above[i], above[i - 3] if i >= 3 else 0
            if filtered == 4:  # Paeth
                guess = left + up - corner
                row[i] = (row[i] + min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]) & 255
            elif filtered:
                row[i] = (row[i] + (left, up, (left + up) // 2)[filtered - 1]) & 255
        above = bytes(row)
        rows.append(above)
    return width, rows


def write(path, rows):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)) + chunk(b"IEND", b""))


def main(sample, x, y, width, height, out):
    whole, rows = read(sample)
    one = (whole - 3 * GAP) // 4
    x, y, width, height = int(x), int(y), int(width), int(height)
    starts = [3 * (panel * (one + GAP) + x) for panel in range(4)]
    write(out, [(b"\xff" * 3 * GAP).join(row[start:start + 3 * width] for start in starts) for row in rows[y:y + height]])


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
