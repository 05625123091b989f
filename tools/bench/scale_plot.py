"""Draws what `codistill bench scale --json` says of one model over one link, against the number of groups: docs/scale.svg."""
import argparse
import json
import pathlib
import sys

from crossing_plot import BOTTOM, GAP, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panel

COLOURS = ["#1f77b4", "#2ca02c", "#9467bd", "#d62728", "#ff7f0e"]
RIVALS = {"allreduce": "allreduce_step_s", "local SGD": "local_sgd_step_s"}


def curves_of(rows):
    """{name: [(groups, row)]}, in the order in which they come."""
    curves = {}
    for row in rows:
        curves.setdefault(row["peers_option"], []).append((row["groups"], row))
    return curves


def panels_of(curves):
    """[(title, unit, {name: [(groups, value)]})]"""
    step = {name: [(g, row["with_exchange_s"] / row["step_s"]) for g, row in points] for name, points in curves.items()}
    first = next(iter(curves.values()))
    for name, key in RIVALS.items():
        step[name] = [(g, row[key] / row["step_s"]) for g, row in first]
    used = {name: [(g, 100 * row["used"]) for g, row in points if row["used"] > 0] for name, points in curves.items()}
    memory = {name: [(g, 1e-9 * row["memory_bytes"] * row["ranks"]) for g, row in points] for name, points in curves.items()}
    return [("a step, of one that only computes", "", step), ("publications used", "%", used), ("memory of a group for it", "GB", memory)]


def draw(rows):
    curves = curves_of(rows)
    colours = dict(zip([*curves, *RIVALS], COLOURS))
    groups = sorted({row["groups"] for row in rows})
    parts = []
    for number, (title, unit, lines) in enumerate(panels_of(curves)):
        values = [value for line in lines.values() for _, value in line]
        panel = Panel(number * (LEFT + WIDTH + GAP), title, (groups[0] / 1.3, groups[-1] * 1.3), (min(values) / 1.3, max(values) * 1.3), unit,
                      "groups", colours)
        for count in groups:
            panel.tick(count, count)
        for name, line in lines.items():
            panel.curve(name, line)
        parts += panel.parts
    width, height = 3 * (LEFT + WIDTH) + 2 * GAP + RIGHT, TOP + HEIGHT + BOTTOM + 24
    legend = [f'<text x="{LEFT + 160 * i}" y="{height - 8}" fill="{colour}">● {name}</text>' for i, (name, colour) in enumerate(colours.items())]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{width}" height="{height}" fill="white"/>', *parts, *legend, "</svg>", ""])


def main(argv):
    p = argparse.ArgumentParser(prog="tools/bench/scale_plot.py", description=__doc__)
    p.add_argument("figures", help="what bench scale --json printed: one model, one link, several layouts and choices of peers")
    p.add_argument("picture", help="the SVG to write")
    arguments = p.parse_args(argv)
    rows = json.loads(pathlib.Path(arguments.figures).read_text())["rows"]
    if len({(row["weights"], row["link_gbit_s"]) for row in rows}) != 1:
        p.error("the figures are not of one model and one link")
    pathlib.Path(arguments.picture).write_text(draw(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
