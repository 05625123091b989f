#!/usr/bin/env python3
"""`codistill gallery`: python3 test_gallery.py CODISTILL [CASE ...]"""

import html.parser
import json
import os
import re
import sys

import browser
from test_report import LUMINANCE
from train_support import CONFIG, Skip, check, png, run_cases

VOID = ("meta", "img", "br", "input")


class Page(html.parser.HTMLParser):
    """Fails where elements do not nest; keeps what images and links point to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.counts = [], [], {}
        self.feed(text)
        check(not self.open, f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        check(self.open and self.open.pop() == tag, f"</{tag}> closes another element")


def make(bench):
    """Two pictures and two models."""
    for i in range(2):
        bench.write(f"photos/p{i} & <co>.png", png(200, 144, i))
    bench.write("t.yaml", CONFIG)
    bench.trained("name=first", "train.steps=30")
    bench.trained("name=second", "train.steps=2")
    return ["runs/first/final.safetensors", "runs/second/final.safetensors"]


def page(bench):
    """One page without references, with the figures of `eval`; it is replaced with --force alone."""
    models = make(bench)
    result = bench.run("gallery", *models, "--data", "photos", "-o", "out.html", "--title", "a < b")
    check(result.code == 0 and re.search(r"out.html: 2 pictures by 3 models, [\d.]+ kB", result.out), "it is written", result)
    text = bench.read("out.html").decode()
    found = Page(text)
    check(all(source.startswith("data:image/webp;base64,") for source in found.sources), "it refers to something")
    check(found.counts["img"] == 2 * 2 * 4 and found.counts["section"] == 2, f"elements: {found.counts}")
    check("<th scope=\"col\">PSNR, dB\u00a0↑</th>" in text and "200\u00a0×\u00a0144 pixels" in text, "units and sizes")
    check(len(re.findall("PSNR\u00a0[\\d.]+\u00a0dB", text)) == 2 * 3, "each model's figures below its picture, and none below the truth")
    check("a &lt; b" in text and "p0 &amp; &lt;co&gt;.png" in text and "first</b>" in text and "second</b>" in text, "names")
    for model in ("bicubic", *models):
        mean = json.loads(bench.run("eval", model, "--data", "photos", "--json").out)["mean"]
        check(f"{mean['psnr_y']:.2f}</td>" in text and f"{mean['ssim_y']:.4f}</td>" in text, f"the page has other figures than {mean} of {model}")
    result = bench.run("gallery", models[0], "--data", "photos", "-o", "out.html")
    check(result.code == 2 and "out.html: exists already; --force replaces it" in result.err and bench.read("out.html").decode() == text, "it was replaced", result)
    result = bench.run("gallery", models[0], "--data", "photos", "-o", "out.html", "--force", "--count", "1", "--side", "64")
    check(result.code == 0 and "1 picture by 2 models" in result.out and 'width="64" height="64"' in bench.read("out.html").decode(), "--count, --side", result)


def judges(bench):
    """NIQE of all that are large enough for it; its mean is of these."""
    model = os.path.join(os.environ.get("COD_DATA", "/nowhere"), "niqe", "niqe_pris_params.npz")
    if not os.path.exists(model):
        raise Skip(f"{model} is not there")
    for name, side in (("a", 208), ("b", 208), ("c", 80)):
        bench.write(f"photos/{name}.png", png(side, side, ord(name)))
    bench.done("gallery", "bicubic", "--data", "photos", "-o", "out.html", "--niqe-model", model)
    text = bench.read("out.html").decode()
    values = [float(value) for value in re.findall(r"NIQE\u00a0([\d.]+)", text)]  # of each picture: bicubic's, the truth's
    means = [float(row[-1]) for row in (re.findall(r">([\d.]+)</td>", row) for row in text.split("<tr>")[2:4])]
    check(len(values) == 4 and "mean is of 2 pictures; the others are too small" in text, f"{values}")
    check(all(abs(mean - (a + b) / 2) < 0.011 for mean, a, b in zip(means, values[:2], values[2:], strict=True)), f"{means} of {values}")


def low(bench):
    """Photographs without truth are enlarged as they are: no PSNR, the picture itself beside the results, NIQE where there is its model."""
    models = make(bench)
    result = bench.run("gallery", *models, "--low", "photos", "-o", "out.html", "--side", "400")
    check(result.code == 0 and "2 pictures by 3 models" in result.out, "it is written", result)
    text = bench.read("out.html").decode()
    found = Page(text)
    check(found.counts["img"] == 2 * 2 * 4 and "400\u00a0×\u00a0400 pixels" in text, f"results of 100x100 pixels of it: {found.counts}")
    check(re.findall('<figure data-name="([^"]*)"', text)[:4] == ["bicubic", "first", "second", "low"], "the views")
    check("There is no truth to compare with" in text and "PSNR\u00a0" not in text and "<table>" not in text and "The figures are" not in text, "figures of what nobody knows")
    bench.refused("--data and --low exclude each other", "gallery", "--data", "photos", "--low", "photos", "-o", "o.html")
    model = os.path.join(os.environ.get("COD_DATA", "/nowhere"), "niqe", "niqe_pris_params.npz")
    if os.path.exists(model):
        bench.done("gallery", "bicubic", "--low", "photos", "-o", "out.html", "--force", "--niqe-model", model)
        text = bench.read("out.html").decode()
        check(len(re.findall(r"NIQE\u00a0([\d.]+)", text)) == 2 and text.count("<tr>") == 2 and ">PSNR" not in text, "NIQE of each result")


def refuses(bench):
    """Models of unlike scales, too many of them, too small pictures; tests/tools/test_bad_inputs.py has the rest."""
    models = make(bench)
    bench.trained("name=twice", "train.steps=2", "model.scale=2")
    bench.write("small/a.png", png(40, 40))
    cases = (((*models, "runs/twice/final.safetensors"), "photos", "enlarges 2 times, but the models before it 4 times"),
             (models, "small", "at least 64 to a side"), (["bicubic"] * 16, "photos", "16 models are too many"))
    for words, data, part in cases:
        bench.refused(part, "gallery", *words, "--data", data, "-o", "o.html")
    check(not os.path.exists(bench.path("o.html")), "a page was written")
    bench.write("photos/broken.png", png(200, 144)[:500])
    result = bench.run("gallery", *models, "--data", "photos", "-o", "o.html")
    check(result.code == 0 and "photos/broken.png" in result.err and "2 pictures" in result.out, "a broken picture is left out", result)


MEASURE = """(() => { const root = document.documentElement, found = [];
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} px wide`);
  document.querySelectorAll('main *').forEach(e => { const box = e.getBoundingClientRect();
    if (!e.closest('.scroll') && (box.right > root.clientWidth + 1 || box.left < -1)) found.push(`<${e.tagName} class=${e.className}> from ${box.left} to ${box.right}`); });
  document.querySelectorAll('img').forEach(i => { if (!i.complete || !i.naturalWidth) found.push(`'${i.alt}' is not shown`); });
  return found; })()"""
STAGE = "(() => { const b = document.querySelector('.stage').getBoundingClientRect(); return {x: b.x, y: b.y, width: b.width, height: b.height}; })()"
VALUE = "document.querySelector('.stage input').value + ' ' + document.querySelector('.stage').style.getPropertyValue('--at')"


class Slider:
    """The first slider of the page."""

    def __init__(self, view):
        self.view = view
        view.evaluate("document.querySelector('.stage').scrollIntoView({block: 'center'})")
        self.box = view.evaluate(STAGE)

    def at(self, share):
        return {"x": self.box["x"] + share * self.box["width"], "y": self.box["y"] + 0.8 * self.box["height"]}

    def seen(self, share):
        """A part of the lower half, about `share` of the way to the right, as it is on the screen."""
        x, y = self.box["x"] + (share - 0.06) * self.box["width"], self.box["y"] + 0.75 * self.box["height"]
        clip = {"x": round(x), "y": round(y), "width": round(0.12 * self.box["width"]), "height": round(0.2 * self.box["height"]), "scale": 1}
        return self.view.call("Page.captureScreenshot", format="png", clip=clip)["data"]

    def mouse(self, *shares):
        for kind, share in zip(("mousePressed", *["mouseMoved"] * (len(shares) - 1)), shares):
            self.view.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **self.at(share))
        self.view.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **self.at(shares[-1]))

    def touch(self, *shares):
        for kind, share in zip(("touchStart", *["touchMove"] * (len(shares) - 1)), shares):
            self.view.call("Input.dispatchTouchEvent", type=kind, touchPoints=[self.at(share)])
        self.view.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.view.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode={"Home": 36, "End": 35, "ArrowRight": 39}[name])


def slides(view, where):
    """The border follows mouse, finger and keys, and each side shows its own picture."""
    slider = Slider(view)
    slider.mouse(0.95)
    left = slider.seen(0.3)
    check(view.evaluate(VALUE) == "95 95%", f"{where}: a click leads to {view.evaluate(VALUE)}")
    slider.mouse(0.5, 0.3, 0.1)
    right = slider.seen(0.3)
    check(view.evaluate(VALUE) == "10 10%" and right != left, f"{where}: dragging leads to {view.evaluate(VALUE)}")
    if where.startswith("375"):
        slider.touch(0.1, 0.4, 0.9)
        check(view.evaluate(VALUE) == "90 90%" and slider.seen(0.3) == left, f"{where}: a finger leads to {view.evaluate(VALUE)}")
    slider.key("Home")
    check(view.evaluate(VALUE) == "0 0%" and slider.seen(0.3) == right, f"{where}: the key Home leads to {view.evaluate(VALUE)}")
    slider.key("ArrowRight")
    check(view.evaluate(VALUE) == "1 1%", f"{where}: an arrow leads to {view.evaluate(VALUE)}")
    view.evaluate("(() => { const s = document.querySelectorAll('.choice select')[1]; s.value = s.options.length - 1; s.onchange(); })()")
    check(view.evaluate("document.querySelector('.tag.right').textContent") == "truth" and slider.seen(0.3) != right, f"{where}: the truth is not shown")


def in_browser(bench):
    """At phone and desktop width in both schemes nothing overflows or pales, and sliders work. $COD_TEST_SHOTS keeps screenshots."""
    program, shots = browser.find(), os.environ.get("COD_TEST_SHOTS")
    if program is None:
        raise Skip(f"no browser: {', '.join(browser.NAMES)}")
    models = make(bench)
    bench.done("gallery", *models, "--data", "photos", "-o", "out.html")
    view = browser.Browser(program, bench.path("tmp"))
    try:
        for width in (375, 1280):
            for dark in (False, True):
                where = f"{width} px, {'dark' if dark else 'light'}"
                view.open(bench.path("out.html"), width, 900, dark)
                found = view.evaluate(MEASURE) + view.complaints()
                check(not found, f"{where}: {found[:10]}")
                light = view.evaluate(LUMINANCE)
                check((light["paper"] < 0.05 if dark else light["paper"] > 0.8) and light["text"] >= 4.5, f"{where}: contrast {light}")
                check(view.evaluate("document.querySelectorAll('.stage').length") == 2, f"{where}: no sliders")
                if shots:
                    view.screenshot(os.path.join(shots, f"gallery-{width}-{'dark' if dark else 'light'}.png"))
                slides(view, where)
        view.call("Emulation.setScriptExecutionDisabled", value=True)
        view.open(bench.path("out.html"), 375, 900, False)
        seen = view.evaluate("[...document.querySelectorAll('.views img')].filter(i => i.getBoundingClientRect().width > 100).length")
        check(seen == 2 * 4 and not view.evaluate(MEASURE), f"without scripts {seen} pictures are shown: {view.evaluate(MEASURE)}")
    finally:
        view.close()


CASES = {"page": page, "judges": judges, "low": low, "refuses": refuses, "browser": in_browser}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
