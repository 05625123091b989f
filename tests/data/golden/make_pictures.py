"""Writes the small pictures beside this file, whose pixels test_image.c computes by the same formulas. Needs Pillow 13.

The PNGs are written by hand, so that every colour type, depth and interlacing is there and no library is its own judge.
"""
import pathlib
import struct
import zlib

from PIL import Image

HERE = pathlib.Path(__file__).parent
W, H = 23, 17


def gray(x, y, depth):
    return (x * 2741 + y * 13) % 65536 if depth == 16 else (x * 5 + y * 3) % (1 << depth)


def rgb(x, y, depth):
    if depth == 16:
        return (x * 2741 + y) % 65536, (y * 3001 + x) % 65536, (x * 701 + y * 1301) % 65536
    return x * 11 % 256, y * 15 % 256, (x * 7 + y * 13) % 256


def alpha(x, y, depth):
    return (x * 2309 + y * 517) % 65536 if depth == 16 else (x * 9 + y * 5) % 256


def samples(x, y, kind, depth):
    """The samples of a pixel; kind is PNG's colour type."""
    if kind == 0:
        return [gray(x, y, depth)]
    if kind == 2:
        return list(rgb(x, y, depth))
    if kind == 3:
        return [(x + 2 * y) % (1 << min(depth, 4))]
    if kind == 4:
        return [gray(x, y, depth), alpha(x, y, depth)]
    return [*rgb(x, y, depth), alpha(x, y, depth)]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rows(kind, depth, x0, y0, dx, dy):
    out = b""
    for y in range(y0, H, dy):
        bits = [format(s, f"0{depth}b") for x in range(x0, W, dx) for s in samples(x, y, kind, depth)]
        line = "".join(bits)
        if line:
            line += "0" * (-len(line) % 8)
            out += b"\0" + int(line, 2).to_bytes(len(line) // 8, "big")
    return out


def png(name, kind, depth, interlaced=False, transparency=None):
    adam7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b"".join(rows(kind, depth, *p) for p in adam7) if interlaced else rows(kind, depth, 0, 0, 1, 1)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, interlaced))
    if kind == 3:
        colours = [(i * 40 % 256, 255 - i * 17 % 256, i * 97 % 256) for i in range(1 << min(depth, 4))]
        out += chunk(b"PLTE", bytes(v for c in colours for v in c))
    if transparency is not None:
        out += chunk(b"tRNS", transparency)
    out += chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")
    (HERE / f"{name}.png").write_bytes(out)


for d in (1, 2, 4, 8, 16):
    png(f"gray{d}", 0, d)
for d in (8, 16):
    png(f"rgb{d}", 2, d)
    png(f"gray_alpha{d}", 4, d)
    png(f"rgba{d}", 6, d)
for d in (1, 4, 8):
    png(f"palette{d}", 3, d)
png("palette8_trns", 3, 8, transparency=bytes([0, 60, 120]))
png("gray8_trns", 0, 8, transparency=struct.pack(">H", 5))
png("rgb8_trns", 2, 8, transparency=struct.pack(">HHH", *rgb(3, 2, 8)))
png("gray4_interlaced", 0, 4, interlaced=True)
png("palette8_interlaced", 3, 8, interlaced=True)
png("rgb8_interlaced", 2, 8, interlaced=True)
png("rgba16_interlaced", 6, 16, interlaced=True)

# Smooth, because JPEG is lossy, and different along x and y, so that each orientation shows.
smooth = Image.new("RGB", (W, H))
smooth.putdata([(10 * x + 10, 14 * y + 10, 250 - 5 * x - 5 * y) for y in range(H) for x in range(W)])
save = {"quality": 97, "subsampling": 0}
smooth.save(HERE / "baseline.jpg", **save)
smooth.save(HERE / "subsampled.jpg", quality=97, subsampling=2)
smooth.save(HERE / "progressive.jpg", progressive=True, **save)
smooth.getchannel("R").save(HERE / "gray.jpg", quality=97)
cmyk = Image.merge("CMYK", [smooth.getchannel(c).point(lambda v: 255 - v) for c in "RGB"] + [Image.new("L", (W, H), 55)])
cmyk.save(HERE / "cmyk.jpg", quality=97)

# What a camera stores that was held as the tag says: the inverse of the turn that shows the picture upright.
T = Image.Transpose
stored = {1: None, 2: T.FLIP_LEFT_RIGHT, 3: T.ROTATE_180, 4: T.FLIP_TOP_BOTTOM, 5: T.TRANSPOSE, 6: T.ROTATE_90,
          7: T.TRANSVERSE, 8: T.ROTATE_270}
for value, turn in stored.items():
    order = "<" if value % 2 else ">"
    tiff = (b"II" if value % 2 else b"MM") + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, value, 0, 0)
    image = smooth.transpose(turn) if turn is not None else smooth
    image.save(HERE / f"orientation{value}.jpg", exif=b"Exif\0\0" + tiff, **save)
    with Image.open(HERE / f"orientation{value}.jpg") as again:
        assert again.getexif().get(0x0112) == value
