"""The picture of crossing.py: time of a step, and time to a quality, against the link's rate; SVG written by hand."""
import math

COLOURS = {"codistill": "#1f77b4", "allreduce": "#d62728"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM, GAP = 420, 300, 70, 40, 20, 50, 40


def nice(number):
    return f"{number:g}"


class Panel:
    """Axes in logarithms; x from the slow link to the fast one."""

    def __init__(self, x_at, title, x_range, y_range, unit, x_label="link rate, Mbit/s", colours=COLOURS):
        self.x_at, self.x_range, self.y_range, self.colours = x_at, x_range, y_range, colours
        self.parts = [f'<rect x="{x_at + LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
                      f'<text x="{x_at + LEFT + WIDTH / 2}" y="{TOP - 14}" text-anchor="middle" font-weight="bold">{title}</text>',
                      f'<text x="{x_at + LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{x_label}</text>']
        for exponent in range(math.floor(math.log10(y_range[0])), math.ceil(math.log10(y_range[1])) + 1):
            for factor in (1, 2, 5):
                value = factor * 10.0**exponent
                if y_range[0] <= value <= y_range[1]:
                    self.parts += [f'<line x1="{x_at + LEFT}" x2="{x_at + LEFT + WIDTH}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}" stroke="#ddd"/>',
                                   f'<text x="{x_at + LEFT - 6}" y="{self.y(value) + 4:.1f}" text-anchor="end">{nice(value)} {unit}</text>']

    def x(self, value):
        low, high = map(math.log, self.x_range)
        return self.x_at + LEFT + WIDTH * (math.log(value) - low) / (high - low)

    def y(self, value):
        low, high = map(math.log, self.y_range)
        return TOP + HEIGHT * (1 - (math.log(value) - low) / (high - low))

    def tick(self, value, label):
        self.parts.append(f'<text x="{self.x(value):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label}</text>')

    def curve(self, strategy, points):
        joined = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{joined}" fill="none" stroke="{self.colours[strategy]}" stroke-width="2"/>')
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="{self.colours[strategy]}"/>' for x, y in points]

    def mark(self, value, text):
        at = self.x(value)
        self.parts += [f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#444" stroke-dasharray="5 4"/>',
                       f'<text x="{at - 5:.1f}" y="{TOP + 16}" text-anchor="end">{text}</text>']

    def ring(self, strategy, x, y):
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="8" fill="none" stroke="{COLOURS[strategy]}" stroke-width="2"/>')


def draw(rows, needed, target, crossing, step_crossing, confirmed):
    """The SVG's text. `rows`: [(bits a second, name, codistill's ms, allreduce's ms)]; `needed`: steps to the target."""
    shaped = [row[0] for row in rows if math.isfinite(row[0])]
    far = max(shaped) * 4  # where a link without a limit is drawn
    place = [far if math.isinf(row[0]) else row[0] for row in rows]
    x_range = (min(place) / 1.3, max(place) * 1.3)
    ms = {"codistill": [row[2] for row in rows], "allreduce": [row[3] for row in rows]}
    seconds = {s: [1e-3 * needed[s] * value for value in ms[s]] for s in ms}
    panels = []
    for number, (title, unit, values, cross) in enumerate((("median step", "ms", ms, step_crossing),
                                                           (f"time to {target:g} dB", "s", seconds, crossing))):
        every = [value for curve in values.values() for value in curve]
        panel = Panel(number * (LEFT + WIDTH + GAP), title, x_range, (min(every) / 1.5, max(every) * 1.5), unit)
        for (bits, name, *_), x in zip(rows, place):
            panel.tick(x, "no limit" if math.isinf(bits) else nice(bits / 1e6))
        if cross:
            panel.mark(cross, f"equal at {cross / 1e6:.0f} Mbit/s")
        for strategy, curve in values.items():
            panel.curve(strategy, sorted(zip(place, curve)))
        panels.append(panel)
    if confirmed and confirmed["target"] == target:
        at = float(confirmed["rate"][:-4]) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[confirmed["rate"][-4:]]
        for strategy in ms:
            panels[1].ring(strategy, at, confirmed[strategy]["seconds"])
    width, height = 2 * (LEFT + WIDTH) + GAP + RIGHT, TOP + HEIGHT + BOTTOM + 24
    legend = [f'<text x="{LEFT + 140 * i}" y="{height - 8}" fill="{COLOURS[s]}">● {s}</text>' for i, s in enumerate(COLOURS)]
    legend += [f'<text x="{LEFT + 300}" y="{height - 8}">○ trained to the target at that rate</text>'] if confirmed else []
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{width}" height="{height}" fill="white"/>', *(part for panel in panels for part in panel.parts), *legend, "</svg>", ""])
