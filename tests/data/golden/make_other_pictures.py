"""Writes the pictures beside this file that are neither PNG nor JPEG, by make_pictures.py's formulas. Needs Pillow 13, numpy and tifffile."""
import pathlib
import struct

import numpy
import tifffile
from PIL import Image

HERE = pathlib.Path(__file__).parent
W, H = 23, 17
X, Y = numpy.meshgrid(numpy.arange(W), numpy.arange(H))


def picture(kind, depth):
    if depth == 16:
        colours = [(X * 2741 + Y) % 65536, (Y * 3001 + X) % 65536, (X * 701 + Y * 1301) % 65536]
        gray, alpha = (X * 2741 + Y * 13) % 65536, (X * 2309 + Y * 517) % 65536
    else:
        colours = [X * 11 % 256, Y * 15 % 256, (X * 7 + Y * 13) % 256]
        gray, alpha = (X * 5 + Y * 3) % 256, (X * 9 + Y * 5) % 256
    planes = {"gray": [gray], "gray_alpha": [gray, alpha], "rgb": colours, "rgba": [*colours, alpha]}[kind]
    return numpy.stack(planes, axis=-1).astype(numpy.uint16 if depth == 16 else numpy.uint8)


rgb, rgba = Image.fromarray(picture("rgb", 8)), Image.fromarray(picture("rgba", 8))
palette = Image.fromarray(((X + 2 * Y) % 16).astype(numpy.uint8), mode="P")
palette.putpalette([v for i in range(16) for v in (i * 40 % 256, 255 - i * 17 % 256, i * 97 % 256)])
smooth = Image.fromarray(numpy.stack([10 * X + 10, 14 * Y + 10, 250 - 5 * X - 5 * Y], axis=-1).astype(numpy.uint8))

# WebP.
rgb.save(HERE / "rgb8.webp", lossless=True)
rgba.save(HERE / "rgba8.webp", lossless=True, exact=True)
smooth.save(HERE / "smooth.webp", quality=100)
turned = Image.Exif()
turned[0x0112] = 6
smooth.transpose(Image.Transpose.ROTATE_90).save(HERE / "orientation6.webp", quality=100, exif=turned)
rgb.save(HERE / "moving.webp", save_all=True, append_images=[palette.convert("RGB")], lossless=True)

# PNG: turned, before its pixels and behind them, and moving.
smooth.transpose(Image.Transpose.ROTATE_90).save(HERE / "orientation6.png", exif=turned)
whole = (HERE / "orientation6.png").read_bytes()
start = whole.index(b"eXIf") - 4
end = start + 12 + int.from_bytes(whole[start:start + 4], "big")
(HERE / "orientation_late.png").write_bytes(whole[:start] + whole[end:-12] + whole[start:end] + whole[-12:])
rgb.save(HERE / "moving.png", save_all=True, append_images=[rgb.transpose(Image.Transpose.ROTATE_180)])

# BMP: two by Pillow, and by hand the kinds that it does not write.
rgb.save(HERE / "rgb8.bmp")
palette.save(HERE / "palette8.bmp")
Image.fromarray((picture("gray", 8) % 2 * 255)[:, :, 0]).convert("1").save(HERE / "gray1.bmp")


def bitmap(name, header, bits, compression, masks, rows, top_down):
    data = b"".join(rows if top_down else reversed(rows))
    body = struct.pack("<IiiHHIIiiII", header, W, -H if top_down else H, 1, bits, compression, len(data), 2835, 2835, 0, 0) + masks
    body += b"\0" * (header - 40 - len(masks) if header > 40 else 0)
    (HERE / name).write_bytes(b"BM" + struct.pack("<IHHI", 14 + len(body) + len(data), 0, 0, 14 + len(body)) + body + data)


v4 = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
bitmap("rgba8.bmp", 108, 32, 3, v4, [rgba.tobytes("raw", "BGRA")[y * W * 4:(y + 1) * W * 4] for y in range(H)], True)
narrow = picture("rgb", 8).astype(numpy.uint32)
packed = ((narrow[:, :, 0] >> 3 << 11) | (narrow[:, :, 1] >> 2 << 5) | narrow[:, :, 2] >> 3).astype("<u2")
bitmap("rgb565.bmp", 40, 16, 3, struct.pack("<III", 0xF800, 0x07E0, 0x1F), [row.tobytes() + b"\0" * (-2 * W % 4) for row in packed], False)

# TIFF.
for kind in ("gray", "gray_alpha", "rgb", "rgba"):
    for depth in (8, 16):
        pixels = picture(kind, depth)
        tifffile.imwrite(HERE / f"{kind}{depth}.tif", pixels[:, :, 0] if kind == "gray" else pixels, compression="zlib", metadata=None,
                         photometric="rgb" if kind.startswith("rgb") else "minisblack", byteorder=">" if depth == 16 else "<",
                         extrasamples=["unassalpha"] if kind.endswith("a") and kind != "rgb" else None, rowsperstrip=5, software=False)
tifffile.imwrite(HERE / "tiles.tif", picture("rgb", 8), tile=(16, 16), compression="zlib", photometric="rgb", metadata=None, software=False)
tifffile.imwrite(HERE / "planes.tif", numpy.moveaxis(picture("rgb", 8), -1, 0), photometric="rgb", planarconfig="separate", metadata=None, software=False)
tifffile.imwrite(HERE / "floats.tif", picture("rgb", 8).astype(numpy.float32), photometric="rgb", metadata=None, software=False)
palette.save(HERE / "palette8.tif", compression="tiff_lzw")
smooth.transpose(Image.Transpose.ROTATE_90).save(HERE / "orientation6.tif", compression="tiff_lzw", tiffinfo={0x0112: 6})


def tiff(name, pixels, **how):
    how = {"photometric": "rgb", "metadata": None, "software": False, **how}
    tifffile.imwrite(HERE / f"{name}.tif", pixels, **how)


# Tiles and planes of every depth, with alpha, multiplied by it, and with a sample that is no colour; white at zero; BigTIFF.
straight = {"extrasamples": ["unassalpha"]}
tiff("tiles_rgba16", picture("rgba", 16), tile=(16, 16), compression="zlib", byteorder=">", **straight)
tiff("tiles_rgb16", picture("rgb", 16), tile=(16, 16))
tiff("tiles_plain", picture("rgb", 8), tile=(16, 16))
tiff("tiles_gray_alpha16", picture("gray_alpha", 16), tile=(16, 32), photometric="minisblack", **straight)
tiff("planes_rgba16", numpy.moveaxis(picture("rgba", 16), -1, 0), planarconfig="separate", **straight)
tiff("planes_tiles_rgba8", numpy.moveaxis(picture("rgba", 8), -1, 0), planarconfig="separate", tile=(16, 16), compression="zlib", **straight)
tiff("white16", 65535 - picture("gray", 16)[:, :, 0], photometric="miniswhite")
tiff("big8", picture("rgb", 8), bigtiff=True)
tiff("big16", picture("rgb", 16), bigtiff=True, byteorder=">")
five = numpy.concatenate([picture("rgb", 8), picture("gray", 8), picture("rgba", 8)[:, :, 3:]], axis=-1)
tiff("rgb_other_alpha8", five, extrasamples=["unspecified", "unassalpha"])
opaque = numpy.where(X < 12, 51, 255).astype(numpy.uint8)[:, :, None]  # 51 is a fifth
tiff("tiles_multiplied8", numpy.concatenate([picture("rgb", 8) // 5 * 5 // numpy.where(X < 12, 5, 1)[:, :, None].astype(numpy.uint8), opaque], axis=-1),
     tile=(16, 16), extrasamples=["assocalpha"])
# What cannot be held by 8 or 16 bits of RGB with alpha.
tiff("signed16", (picture("rgb", 16) // 2).astype(numpy.int16))
tiff("cmyk16", numpy.concatenate([picture("rgb", 16), picture("gray", 16)], axis=-1), photometric="separated")
# A smaller copy before the picture, and two pictures.
with tifffile.TiffWriter(HERE / "thumbnail_first.tif") as file:
    file.write(picture("rgb", 8)[::4, ::4], photometric="rgb", subfiletype=1, metadata=None, software=False)
    file.write(picture("rgb", 8), photometric="rgb", subfiletype=0, metadata=None, software=False)
with tifffile.TiffWriter(HERE / "pages.tif") as file:
    for page in (picture("rgb", 8), picture("rgb", 8)[::-1]):
        file.write(page, photometric="rgb", metadata=None, software=False)
