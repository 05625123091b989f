#!/usr/bin/env python3
"""NIQE against PSNR of the models between A and B (`codistill interpolate`): a table on stdout, and a curve as SVG.

usage: interpolation.py CODISTILL A B --niqe-model FILE [--svg FILE] [--alphas 0,0.2,...] NAME=FOLDER...

A is trained by pixels, B goes on from it with an adversarial loss. Each FOLDER holds pictures that neither has seen; bicubic is measured beside.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 300, 70, 40, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def measure(program, model, folder, niqe_model):
    command = [program, "eval", model, "--data", folder, "--metrics", "psnr,ssim,niqe", "--niqe-model", niqe_model, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["mean"]


def measure_all(arguments, alphas, folders):
    """{(model's name, folder's name): figures}"""
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        for label in ["bicubic", *alphas]:
            model = "bicubic"
            if label != "bicubic":
                model = os.path.join(scratch, "between.safetensors")
                subprocess.run([arguments.codistill, "interpolate", arguments.a, arguments.b, "--alpha", label, "-o", model], check=True, stdout=subprocess.DEVNULL)
            for name, folder in folders.items():
                rows[label, name] = measure(arguments.codistill, model, folder, arguments.niqe_model)
    return rows


def table(rows, alphas, folders):
    lines = ["| model | " + " | ".join(f"{name}: PSNR, dB | SSIM | NIQE" for name in folders) + " |", "| --- |" + " ---: |" * 3 * len(folders)]
    for label in ["bicubic", *alphas]:
        cells = [f"{row['psnr_y']:.2f} | {row['ssim_y']:.4f} | {row['niqe']:.2f}" for row in (rows[label, name] for name in folders)]
        lines.append(f"| {label if label == 'bicubic' else 'alpha ' + label} | " + " | ".join(cells) + " |")
    truth = [f"| | {rows['bicubic', name]['niqe_truth']:.2f}" for name in folders]
    return "\n".join([*lines, "| the originals | " + " | ".join(truth) + " |"])


def draw(rows, alphas, folders):
    """One curve for each folder, with bicubic as a ring."""
    every = list(rows.values())
    low, high = ([pick(row[key] for row in every) for key in ("psnr_y", "niqe")] for pick in (min, max))
    margin = [0.08 * (b - a) or 1 for a, b in zip(low, high)]

    def at(row):
        part = [(row[key] - a + m) / (b - a + 2 * m) for key, a, b, m in zip(("psnr_y", "niqe"), low, high, margin)]
        return LEFT + WIDTH * part[0], TOP + HEIGHT * (1 - part[1])

    height = TOP + HEIGHT + BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="100%" height="100%" fill="white"/><rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
             f'<text x="{LEFT}" y="{TOP - 12}">NIQE (lower is better)</text>',
             f'<text x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 34}" text-anchor="end">PSNR of Y, dB</text>']
    for i in range(5):
        psnr, niqe = (a - m + (b - a + 2 * m) * i / 4 for a, b, m in zip(low, high, margin))
        parts += [f'<text x="{LEFT + WIDTH * i / 4:.1f}" y="{TOP + HEIGHT + 17}" text-anchor="middle">{psnr:.2f}</text>',
                  f'<text x="{LEFT - 6}" y="{TOP + HEIGHT * (1 - i / 4) + 4:.1f}" text-anchor="end">{niqe:.2f}</text>']
    for number, (name, colour) in enumerate(zip(folders, COLOURS)):
        points = [at(rows[alpha, name]) for alpha in alphas]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/><text x="{x + 6:.1f}" y="{y - 5:.1f}">{alpha}</text>' for alpha, (x, y) in zip(alphas, points)]
        x, y = at(rows["bicubic", name])
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="{colour}" stroke-width="2"/>',
                  f'<text x="{LEFT + 120 * number}" y="{height - 8}" fill="{colour}">● {name} (○ bicubic)</text>']
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codistill")
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("folders", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--niqe-model", required=True)
    parser.add_argument("--svg")
    parser.add_argument("--alphas", default="0,0.2,0.4,0.6,0.8,1")
    arguments = parser.parse_args()
    folders, alphas = dict(folder.split("=", 1) for folder in arguments.folders), arguments.alphas.split(",")
    rows = measure_all(arguments, alphas, folders)
    print(table(rows, alphas, folders))
    if arguments.svg:
        with open(arguments.svg, "w", encoding="utf-8") as file:
            file.write(draw(rows, alphas, folders))


if __name__ == "__main__":
    sys.exit(main())
