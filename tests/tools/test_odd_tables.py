#!/usr/bin/env python3
"""A table of tables of measurements, as CSV and as MNIST's IDX files, in all forms that programs write them, made here, each with the right
numbers or the right refusal: python3 test_odd_tables.py CODISTILL [CASE ...]"""

import gzip
import struct
import sys

from test_classes import CONFIG
from torch_files import plain_zip
from train_support import check, check_count, run_cases

HEAD = "x,y,kind\n"
ROWS = [(i * 0.5 + i % 3, i % 3 * 2 - i % 7 / 8, "abc"[i % 3]) for i in range(30)]


def table(change=lambda row: row, comma=",", end="\n", head=HEAD):
    return head.replace(",", comma).replace("\n", end) + "".join(comma.join(map(str, change(row))) + end for row in ROWS)


PLAIN = table()


def first(field):
    """The first row's first field is another."""
    return PLAIN.replace("\n0.0,", f"\n{field},", 1)


SAME = {  # what is read as PLAIN is
    "mark": "\ufeff" + PLAIN,
    "crlf": table(end="\r\n"),
    "only_cr": table(end="\r"),
    "no_end": PLAIN[:-1],
    "blank_lines": "\n\n" + PLAIN.replace("\n", "\n\n"),
    "no_header": PLAIN[len(HEAD):],
    "quotes": table(lambda row: [f'"{v}"' for v in row]),
    "mark_quotes_crlf": "\ufeff" + table(lambda row: [f'"{v}"' for v in row], end="\r\n", head='"x","y","kind"\n'),
    "header_of_lines": PLAIN.replace("x,y", '"x, in ""cm""","y\nof all"', 1),
    "header_empty": PLAIN.replace("x,y", ",", 1),
    "header_not_text": PLAIN.replace("x,y", "l\u00e4nge,y").encode("latin-1"),
    "exponents": table(lambda row: (f"{row[0]:.6E}", f"{row[1]:+.3f}", row[2])),
    "hexadecimal": table(lambda row: (row[0].hex(), *row[1:])),
    "spaces": table(lambda row: (f"  {row[0]} ", f"\t{row[1]}\t", row[2])),
    "tiny": first("1e-60"),
}

REFUSED = {  # and words of its refusal
    "tabs": (table(comma="\t"), ":1: its columns are separated by tabs; commas are wanted"),
    "semicolons": (table(comma=";"), ":1: its columns are separated by semicolons; commas are wanted"),
    "decimal_commas": (table(comma=";").replace(".", ","), ":1: its columns are separated by semicolons; commas are wanted, and decimal points"),
    "bars": (table(comma="|"), ":1: its columns are separated by bars; commas are wanted"),
    "blanks": (table(comma=" "), ":1: at least two columns are wanted"),
    "one_column": ("x\n1\n2\n", ":1: at least two columns are wanted"),
    "comment": ("# by hand\n" + PLAIN, ":1: at least two columns are wanted"),
    "comment_commas": ("# by hand, twice, so\n" + PLAIN, ":2: column 1: 'x' is no number"),
    "comment_within": (PLAIN.replace("b\n", "b\n# x\n", 1), ":4: 1 fields, where the first line has 3"),
    "missing": (first(""), ":2: column 1: '' is empty"),
    "missing_quoted": (first('""'), ":2: column 1: '' is empty"),
    "question": (first("?"), ":2: column 1: '?' is no number"),
    "not_available": (first("NA"), ":2: column 1: 'NA' is no number"),
    "nan": (first("nan"), ":2: column 1: 'nan' is no number"),
    "infinity": (first("-inf"), ":2: column 1: '-inf' is beyond the largest number"),
    "huge": (first("1e39"), ":2: column 1: '1e39' is beyond the largest number"),
    "thousands": (first('"1,234"'), ":2: column 1: '1,234' is no number"),
    "apostrophes": (first("1'234"), ":2: column 1: '1'234' is no number"),
    "per_cent": (first("5%"), ":2: column 1: '5%' is no number"),
    "minus_sign": (first("\u22125"), "5' is no number"),
    "trailing": (table(lambda row: (*row, "")), ":2: 4 fields, where the first line has 3"),
    "trailing_header": (table(lambda row: (*row, ""), head="x,y,kind,\n"), ":2: column 4, which names the class, is empty"),
    "no_class": (PLAIN.replace(",b\n", ",\n", 1), ":3: column 3, which names the class, is empty"),
    "spaced_class": (PLAIN.replace(",b\n", ", b\n", 1), "only spaces tell the classes"),
    "spaced_end": (PLAIN.replace(",b\n", ",b \n", 1), "only spaces tell the classes"),
    "class_first": (table(lambda row: (row[2], *row[:2]), head="kind,x,y\n"), ":2: column 1: 'a' is no number"),
    "one_class": (table(lambda row: (*row[:2], "a")), "1 classes cannot be learned; 2 to 65536 can"),
    "fewer_columns": (PLAIN + "1,a\n", ":32: 2 fields, where the first line has 3"),
    "more_columns": (PLAIN + "1,2,3,a\n", ":32: 4 fields, where the first line has 3"),
    "too_many_columns": (",".join(map(str, range(5000))) + "\n", ":1: has more than 4096 columns"),
    "no_rows": (HEAD, "no line follows the header"),
    "empty": ("", "is an empty file, not a table"),
    "blank": ("\r\n\r\n", "at least two columns are wanted"),
    "header_again": (PLAIN + HEAD, ":32: column 1: 'x' is no number"),
    "header_of_numbers": (PLAIN.replace("x,y", "2001,2002", 1), ":1: is this line a header or a row?"),
    "open_quote": (PLAIN + '1,"2,a\n', ":32:3: a quote that is not closed"),
    "behind_quote": (first('"1" '), ":2: after a closing quote a comma is wanted"),
    "utf16": (PLAIN.encode("utf-16"), "is text in UTF-16: save it as UTF-8"),
    "utf16_without_mark": (PLAIN.encode("utf-16-le"), "is no text: byte 1 is zero"),
    "not_utf8": (PLAIN.replace("b\n", "caf\u00e9\n").encode("latin-1"), r"the class 'caf\xE9' is not UTF-8 text: rename it"),
    "zero": (PLAIN.encode() + b"\0", "is no text: byte"),
    "gzip": (gzip.compress(PLAIN.encode()), "is a gzip file, not a table: unpack it"),
    "xlsx": (plain_zip({"[Content_Types].xml": b"<", "xl/workbook.xml": b"<"}), "is an Office document, such as xlsx, not a table: export what it holds"),
    "ods": (plain_zip({"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"}), "is an OpenDocument file, such as ods, not a table: export"),
    "xls": (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "is an Office document, such as xls, not a table: export"),
    "parquet": (b"PAR1" + bytes(60) + b"PAR1", "is a Parquet file, not a table: export"),
    "page": ("<!DOCTYPE html><table>", "is an HTML page, not a table"),
    "json": ('[{"x": 1}]\n', ":1: at least two columns are wanted"),
}


# Names of classes in other scripts, with line breaks and quotes, and numbers.
NAMES = {"scripts": ("\u00fc", "\u4e2d", "\U0001f600"), "quoted": ('"a, ""b"""', '"c\nd"', "'e'"), "numbers": (0, 1.5, -2)}


def tables(bench):
    """A model judges each table as the plain one, or says why it does not."""
    check_count("tables (CSV) that are read as the plain one is", len(SAME) + len(NAMES))
    check_count("tables (CSV) that are refused", len(REFUSED))
    bench.write("c.yaml", CONFIG)
    bench.write("plain.csv", PLAIN)
    bench.done("train", "c.yaml", "name=p", "data.kind=iris", "data.path=plain.csv", "train.steps=3", "eval.every=0", "data.val_fraction=0")
    right = bench.done("eval", "runs/p/final.safetensors", "--data", "plain.csv", "--json").out
    check('"count": 30,' in right, f"{right}")
    for name, text in SAME.items():
        bench.write(f"{name}.csv", text)
        result = bench.done("eval", "runs/p/final.safetensors", "--data", f"{name}.csv", "--json")
        check(result.out == right, f"{name} is read otherwise", result)
    for name, (text, words) in REFUSED.items():
        bench.write(f"{name}.csv", text)
        result = bench.run("eval", "runs/p/final.safetensors", "--data", f"{name}.csv", "--json")
        check(result.code in (1, 2) and f"{name}.csv" in result.err and words in result.err, f"{name}: nobody says '{words}'", result)
    for name, classes in NAMES.items():
        bench.write(f"{name}.csv", table(lambda row, classes=classes: (*row[:2], classes["abc".index(row[2])])))
        bench.done("train", "c.yaml", f"name={name}", "data.kind=iris", f"data.path={name}.csv", "train.steps=1", "eval.every=0", "data.val_fraction=0")
        bench.done("eval", f"runs/{name}/final.safetensors", "--data", f"{name}.csv")


SIDE, COUNT = 4, 20


def idx(magic, sides, values, order=">"):
    return struct.pack(f"{order}I{len(sides)}I", magic, *sides) + values


IMAGES = idx(0x803, (COUNT, SIDE, SIDE), bytes(i * 7 % 251 for i in range(COUNT * SIDE * SIDE)))
LABELS = idx(0x801, (COUNT,), bytes(i % 3 for i in range(COUNT)))

IDX_SAME = {  # files in place of train-images-idx3-ubyte and train-labels-idx1-ubyte: what is read as IMAGES and LABELS are
    "plain": {"train-images-idx3-ubyte": IMAGES},
    "dots": {"train-images.idx3-ubyte": IMAGES},
    "gzip": {"train-images-idx3-ubyte.gz": gzip.compress(IMAGES), "train-labels-idx1-ubyte.gz": gzip.compress(LABELS)},
    "gzip_unnamed": {"train-images-idx3-ubyte": gzip.compress(IMAGES)},
    "unpacked_gz": {"train-images-idx3-ubyte.gz": IMAGES},
    "gzip_in_two": {"train-images-idx3-ubyte.gz": gzip.compress(IMAGES[:99]) + gzip.compress(IMAGES[99:])},
}

IDX_REFUSED = {  # the images or the labels, and words of their refusal
    "magic": (idx(0x12345678, (COUNT, SIDE, SIDE), IMAGES[16:]), "it begins with bytes 12 34 56 78, not 00 00 08 03"),
    "little": (idx(0x803, (COUNT, SIDE, SIDE), IMAGES[16:], "<"), "it begins with bytes 03 08 00 00, not 00 00 08 03"),
    "signed": (idx(0x903, (COUNT, SIDE, SIDE), IMAGES[16:]), "it begins with bytes 00 00 09 03, not 00 00 08 03"),
    "shorts": (idx(0xB03, (COUNT, SIDE, SIDE), IMAGES[16:] * 2), "it begins with bytes 00 00 0b 03"),
    "floats": (idx(0xD03, (COUNT, SIDE, SIDE), IMAGES[16:] * 4), "it begins with bytes 00 00 0d 03"),
    "doubles": (idx(0xE03, (COUNT, SIDE, SIDE), IMAGES[16:] * 8), "it begins with bytes 00 00 0e 03"),
    "flat": (idx(0x802, (COUNT, SIDE * SIDE), IMAGES[16:]), "it begins with bytes 00 00 08 02"),
    "colours": (idx(0x804, (COUNT, SIDE, SIDE, 1), IMAGES[16:]), "it begins with bytes 00 00 08 04"),
    "none": (idx(0x803, (0, SIDE, SIDE), b""), "byte 4: a side of 0 cannot be right"),
    "narrow": (idx(0x803, (COUNT, SIDE, 0), b""), "byte 12: a side of 0 cannot be right"),
    "huge": (idx(0x803, (2**31, 2**31, 2**31), b""), "cannot be right"),
    "promises": (idx(0x803, (COUNT, 4096, 4096), b""), "which its 16 bytes cannot hold"),
    "short": (IMAGES[:-1], "ends early: 335 bytes, where its header promises 336"),
    "long": (IMAGES + b"\0", "goes on after byte 336, where its header lets it end"),
    "cut_gzip": (gzip.compress(IMAGES)[:-20], "train-images-idx3-ubyte:"),
    "damaged_gzip": (gzip.compress(IMAGES)[:-8] + bytes(8), "damaged gzip data"),
    "more": (idx(0x803, (COUNT + 1, SIDE, SIDE), IMAGES[16:] + bytes(16)), "20 labels (byte 4), but"),
    "other_size": (idx(0x803, (COUNT, 8, 2), IMAGES[16:]), "pictures of 4x4 (bytes 8 to 15), but"),
    "swapped": (LABELS, "it begins with bytes 00 00 08 01, not 00 00 08 03"),
    "empty": (b"", "is an empty file, not an IDX file"),
    "page": (b"<!DOCTYPE html><html>", "is an HTML page, not an IDX file"),
    "zip": (plain_zip({"train-images.idx3-ubyte": IMAGES}), "is a ZIP archive, not an IDX file: unpack it"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n" + bytes(80), "is a Git LFS pointer, not an IDX file"),
}


def idx_files(bench):
    """Pictures and labels of MNIST's form, packed or not, give what the plain ones give, or are refused."""
    check_count("tables (IDX) that are read as the plain ones are", len(IDX_SAME))
    check_count("tables (IDX) that are refused", len(IDX_REFUSED))
    bench.write("c.yaml", CONFIG)

    def put(name, files):
        for file, data in {"t10k-images-idx3-ubyte": IMAGES, "t10k-labels-idx1-ubyte": LABELS, **files}.items():
            bench.write(f"{name}/{file}", data)
        if not any("labels" in file for file in files):
            bench.write(f"{name}/train-labels-idx1-ubyte", LABELS)

    put("right", IDX_SAME["plain"])
    options = ["data.kind=mnist", "train.steps=1", "eval.every=0", "data.val_fraction=0"]
    bench.done("train", "c.yaml", "name=p", "data.path=right", *options)
    right = bench.done("eval", "runs/p/final.safetensors", "--data", "right", "--json").out
    for name, files in IDX_SAME.items():
        put(name, files)
        check(bench.done("eval", "runs/p/final.safetensors", "--data", name, "--json").out == right, f"{name} is read otherwise")
    for name, (data, words) in IDX_REFUSED.items():
        put(f"bad_{name}", {"train-images-idx3-ubyte": data})
        result = bench.run("eval", "runs/p/final.safetensors", "--data", f"bad_{name}")
        check(result.code in (1, 2) and f"bad_{name}" in result.err and words in result.err, f"{name}: nobody says '{words}'", result)


CASES = {"tables": tables, "idx": idx_files}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
