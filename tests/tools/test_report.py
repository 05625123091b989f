#!/usr/bin/env python3
"""The report of a comparison, from comparisons made up, and the page of a run: python3 test_report.py CODISTILL [CASE ...]"""

import base64
import copy
import html.parser
import json
import os
import random
import re
import sys
import time

import browser
import report_support as made
from train_support import Failure, Skip, check, run_cases

VOID = {"meta", "img", "br"}
TAGS = VOID | set("html head title style body main h1 h2 h3 p b strong small ul li span section div table thead tbody tr th td figure "
                  "figcaption details summary code pre dl dt dd svg text defs pattern path line circle rect".split())


class Page(html.parser.HTMLParser):
    """Checks while it reads that tags are closed in order, known, and refer to nothing outside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.images, self.words = [], [], [], []
        self.feed(text)
        self.close()
        check(not self.open, f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        check(tag in TAGS, f"unexpected <{tag}> in line {self.getpos()[0]}")
        for name, value in attrs:
            check(not name.startswith("on") and name not in ("href", "xlink:href", "srcset", "action"), f"<{tag} {name}>")
            if name == "src":
                check(value.startswith("data:image/png;base64,"), f"src={value[:60]}")
                self.images.append(base64.b64decode(value.split(",", 1)[1], validate=True))
            if name == "id":
                self.ids.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        check(self.open and self.open[-1] == tag, f"</{tag}> in line {self.getpos()[0]} while {self.open[-3:]} are open")
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            check("url(" not in data.replace("url(#", "") and "@import" not in data and "//" not in data, "the style refers outside")
        else:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words)).replace("−", "-")


def written(bench, folder, document=None):
    """The page of a comparison, checked."""
    if document is not None:
        made.store(bench, folder, document)
    result = bench.run("report", folder)
    check(result.code == 0 and result.out == f"written to {folder}/report.html\n", "no report", result)
    with open(bench.path(folder, "report.html"), encoding="utf-8") as file:
        text = file.read()
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), "control characters")
    page = Page(text)
    check(len(set(page.ids)) == len(page.ids), f"ids are not unique: {sorted(page.ids)}")
    return page


def says(page, *parts):
    for part in parts:
        check(part in page.text, f"'{part}' is not in the report: {page.text[:6000]}")


def pngs(bench, folder):
    return sorted(name for name in os.listdir(bench.path(folder)) if name.endswith(".png"))


def ticks(bench, folder, title):
    """What stands at the axes of a plot."""
    plot = bench.read(folder, "report.html").decode().split(f'aria-label="{title}"')[1].split("</svg>")[0]
    return re.findall(r'class="tick"[^>]*>([^<]*)</text>', plot)


def classification(bench):
    page = written(bench, "c", made.classification())
    says(page, "allreduce is better than single by 4.", "distil is better than single by 1.", "merge is better than single by 4.",
         "paired over 3 seeds", "p < 0.001", "1000 steps each", "accuracy on the test set", "Quality, links: 20 Mbit/s",
         "test cross entropy", "held-out cross entropy", "accuracy on the test set, mean of groups, %", "accuracy on the test set, final model, %",
         "test calibration error, each group's own, mean", "AMD EPYC 9R14, 2 processors", "codistill compare configs/compare-mnist.yaml", "codistill report c",
         "name: mnist train: {steps: 1000}", "distill.weight=0 exchange.period=50", "Calibration error, groups together", "The table has the mean of each group’s own, which is another figure", "2026-11-22 01:50 UTC")
    says(page, "all arms were tuned alike: each was trained with each candidate, with seed 0, and keeps what was best by this: accuracy on the "
         "held-out examples, mean over the groups at the end. Test data had no part in it.",
         "merge: train.rate=3.0e-3 train.warmup=100 train.clip_norm=1, the best of 4 candidates (92.63 %). train.rate=3.0e-3 is the highest tried; "
         "the best may lie beyond.", "distil: no change, the only candidate. train.rate=0.1 is set by the arm itself.",
         "merge train.rate=3.0e-490.63 % train.rate=1.0e-391.63 % train.rate=3.0e-3 train.warmup=100 train.clip_norm=192.63 %chosen "
         "train.rate=3.0e-3 train.loss=mse–failed: the loss became NaN or infinite at step 40")
    check(bench.read("c", "report.html").count(b"<details><summary>Quality, links: 20 Mbit/s</summary>") == 1, "the second rate is folded")
    for title, first in (("Final quality, no limit", "89"), ("Churn", "0"), ("Calibration error, groups together, no limit", "0")):
        check(ticks(bench, "c", title)[0] == first, f"the axis of '{title}': {ticks(bench, 'c', title)}")
    check({"verdict", "arms", "tuning", "rates", "curves", "costs", "agreement", "making"} <= set(page.ids), f"sections: {page.ids}")
    check("failures" not in page.ids and "crops" not in page.ids, "sections of nothing")
    version = bench.run("--version").out
    if "no librsvg" in version:
        check(pngs(bench, "c") == [], "PNG files without librsvg")
        return
    expected = {"bytes", "calibration", "churn", "disagreement", "quality", "quality-20mbit", "quality-bytes", "quality-steps",
                "quality-time", "quality-time-20mbit", "reliability", "step-time", "step-time-20mbit", "time-rate"}
    check(set(pngs(bench, "c")) == {f"{name}.png" for name in expected}, f"{pngs(bench, 'c')}")
    for name in expected:
        data = bench.read("c", f"{name}.png")
        check(data[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(data[16:20], "big") == 960, f"{name}.png")


def removed(bench):
    """What the page before named as a plot goes when nothing draws it any more; what is not the report's own stays."""
    if "no librsvg" in bench.run("--version").out:
        raise Skip("this build draws no PNG files")
    written(bench, "r/c", made.classification())
    before = set(pngs(bench, "r/c"))
    for other in ("r/c/mine.png", "r/outside.png"):
        bench.write(other, b"not the report's")
    with open(bench.path("r/c", "report.html"), "a", encoding="utf-8") as page:
        page.write('<span class="file">../outside.png</span><span class="file">.png</span><span class="file">mine.png<span class="file">')
    written(bench, "r/c", dict(made.classification(rates=("none",)), churn=None))
    gone = {"churn.png", "quality-20mbit.png", "quality-time-20mbit.png", "step-time-20mbit.png", "time-rate.png"}
    check(gone <= before, f"never written: {gone - before}")
    check(set(pngs(bench, "r/c")) == before - gone | {"mine.png"}, f"{pngs(bench, 'r/c')}")
    check(pngs(bench, "r") == ["outside.png"], f"{pngs(bench, 'r')}")


def with_qualities(lists, seeds=None, **metric):
    """Arms a, b, … of nothing but a quality for each seed."""
    document = made.classification(1, ("none",), made.ARMS[:1])
    document["metric"].update(metric)
    document["arms"] = [{"name": "abcdefgh"[k], "runs": [{"seed": (seeds[k] if seeds else range(len(values)))[i], "quality": value}
                                                         for i, value in enumerate(values)]} for k, values in enumerate(lists)]
    document.update(baseline="a", churn=None)
    return document


def verdicts(bench):
    """What is said follows from the figures alone."""
    # b - a: 1.1, 1.2, 0.9, 1.2, t = 15.56 with 3 degrees of freedom; p = 0.00057 (Abramowitz & Stegun 26.7.4), twice that after Holm.
    # c - a: 0.2, -0.1, -0.1, 0.2, t = 0.577, p = 0.604. The half widths are 3.182 standard errors.
    a, b, c = [90.1, 90.3, 90.2, 90.2], [91.2, 91.5, 91.1, 91.4], [90.3, 90.2, 90.1, 90.4]
    page = written(bench, "v1", with_qualities([a, b, c]))
    says(page, "b has the best mean: 91.30 ± 0.18 % (± standard deviation, 4 seeds)", "b is better than a by 1.10 points (95 % CI +0.87 to +1.33, p = 0.001, paired over 4 seeds)",
         "c: no difference from a shown. Measured: +0.05 points (95 % CI -0.23 to +0.33, p = 0.60, paired over 4 seeds)", "the lead is more than chance")
    page = written(bench, "v2", with_qualities([b, a, c]))
    says(page, "b is worse than a by 1.10 points (95 % CI -1.33 to -0.87")
    page = written(bench, "v3", with_qualities([a, b], higher_is_better=False, unit="dB"))
    says(page, "a has the best mean", "b is worse than a by 1.10 dB")
    page = written(bench, "v4", with_qualities([a, b], seeds=[range(4), range(10, 14)]))
    says(page, "Welch, 4 and 4 seeds")
    page = written(bench, "v5", with_qualities([a, b[:1], a, [x + 0.5 for x in a]]))
    says(page, "b: no statement. One seed does not tell a difference from chance; measured: +1.10 points", "c: no difference, the same result as a with each of 4 seeds",
         "d: no statement. It differs from a by +0.50 points in each of 4 seeds")
    page = written(bench, "v6", with_qualities([a[:2], [90.2, 90.5]]))
    says(page, "with so few seeds only a very large difference could show")
    page = written(bench, "v7", dict(with_qualities([a, b]), baseline="absent"))
    says(page, "names no baseline among its arms")


def crossing(bench):
    """Where the time to the target crosses the baseline's is told in words, and found by logarithms."""
    document = with_qualities([[90.0] * 2, [90.0] * 2])
    rates = {"10mbit": (100, 10), "100mbit": (20, 20 / 0.5), "none": (5, 30)}
    for k, arm in enumerate(document["arms"]):
        arm["runs"] = [{"seed": seed, "rate": rate, "quality": 90, "curve": [{"step": 1, "time_s": 0, "quality": 0}, {"step": 2, "time_s": times[k], "quality": 90}]}
                       for rate, times in rates.items() for seed in (1, 2)]
    document["rates"] = ["none", "10mbit", "100mbit"]
    page = written(bench, "x", document)
    check(all(80 < float(tick) < 100 for tick in ticks(bench, "x", "Final quality, no limit")), "equal values are in the middle of a short axis")
    # log ratio of the times: ln 10 at 10 Mbit/s, -ln 2 at 100: 10 * 10^(ln 10 / (ln 10 + ln 2)) = 58.7
    says(page, "b is sooner on links slower than about 58.7 Mbit/s (between the measured 10 Mbit/s and 100 Mbit/s); at 10 Mbit/s by a factor of 10",
         "time to 90.00 % on validation data, against a")
    for arm in document["arms"]:
        arm["runs"] = [run for run in arm["runs"] if run["rate"] != "100mbit"]
    says(written(bench, "x", document), "b is sooner on links slower than a rate somewhere above 10 Mbit/s")
    for run in document["arms"][1]["runs"]:
        run["curve"][1]["time_s"] = 2
    says(written(bench, "x", document), "b is sooner at every rate measured (10 Mbit/s to no limit), by 2.5 to 50 times")
    for arm in document["arms"]:
        arm["runs"] += [dict(run, rate=rate) for run in arm["runs"][:2] for rate in ("100mbit", "125mbit")]
    document["rates"] = ["none", "10mbit", "100mbit", "125mbit"]
    written(bench, "x", document)
    named = [tick for tick in ticks(bench, "x", "Time to a quality against the link’s rate") if "bit/s" in tick or "limit" in tick]
    check(named == ["10 Mbit/s", "100 Mbit/s", "no limit"], f"a rate is named where there is no room, or not where there is: {named}")


def pictures(bench):
    page = written(bench, "p", made.pictures(bench, "p"))
    says(page, "There are no test data: the results are measured on the data that were chosen by, with other seeds.",
         "merge is better than single", "PSNR of luma on Set5", "butterfly", "24.33 dB")
    files = [bench.read("p", "crops", f"{k}-{i}.png") for k in range(2) for i in range(4)]
    check(page.images == files, f"{len(page.images)} pictures, not {len(files)}, or others")
    check("agreement" not in page.ids, "a section of classifiers")
    os.remove(bench.path("p", "crops", "0-1.png"))
    bench.write("p/crops/1-1.png", b"no picture")
    page = written(bench, "p")
    says(page, "The picture is missing: cannot open 'p/crops/0-1.png'", "The picture is missing: no PNG")
    check(len(page.images) == 6, "pictures")


def incomplete(bench):
    page = written(bench, "i", made.incomplete())
    check("tuning" in page.ids, f"sections: {page.ids}")
    says(page, "local_sgd: none of 2 candidates was chosen.", "by this: quality on held-out data", "2 of 4 runs did not finish", "rank 2: cannot read 'data/mnist': No such file or directory", "allreduce: no statement", "0 of 1",
         "distil: no statement. One seed", "No run recorded evaluations", "No run recorded where its steps’ time goes", "No run recorded the bytes")
    page = written(bench, "least", {"format": "codistill-compare-1"})
    says(page, "The comparison has no arms")
    page = written(bench, "none", {"format": "codistill-compare-1", "arms": [{"name": "a"}, {}], "baseline": "a", "rates": [None]})
    says(page, "No run has finished with a result")


def hostile(bench):
    page = written(bench, "h", made.hostile())
    says(page, "<script>alert(1)</script>", "codistill compare 'a'\\''b <i>.yaml'", "'../../etc/passwd' lies outside the folder",
         "\ufffd[31m")
    check(page.images == [], "a picture from elsewhere")
    text = bench.read("h", "report.html").decode()
    check("<script" not in text and "<i>" not in text and "<img" not in text, "markup came through")


def broken(bench):
    def fails(code, part, *arguments):
        result = bench.run("report", *arguments)
        check(result.code == code and part in result.err and result.out == "", f"expected exit code {code} and '{part}'", result)
    bench.write("file", "")
    os.makedirs(bench.path("empty"))
    fails(2, "FOLDER is missing: a comparison's, or a run's")
    fails(2, "one FOLDER is wanted, not also 'b'", "a", "b")
    fails(2, "there is no option --fast", "--fast")
    fails(2, "there is no folder 'absent'", "absent")
    fails(2, "'file' is no folder", "file")
    fails(1, "cannot open 'empty/compare.json'", "empty")
    for name, text, part in (("other", '{"format": "codistill-compare-9"}', 'its format is "codistill-compare-9"; this version reads'),
                             ("old", '{"config": "x", "runs": []}', 'it has no "format"'), ("list", "[1]", 'it has no "format"'),
                             ("bad", "{\"format\": \"codistill-compare-1\", }", "bad/compare.json: "), ("nothing", "", "nothing/compare.json: ")):
        bench.write(f"{name}/compare.json", text)
        fails(1, part, name)
        check(not os.path.exists(bench.path(name, "report.html")), f"{name}: a report all the same")
    whole = json.dumps(made.classification(1, ("none",), made.ARMS[:2])).encode()
    for share in range(1, 12):
        bench.write("cut/compare.json", whole[:len(whole) * share // 12])
        fails(1, "cut/compare.json: ", "cut")
    made.store(bench, "sealed", made.classification(1, ("none",), made.ARMS[:2]))
    os.makedirs(bench.path("sealed", "report.html"))
    fails(1, "sealed/report.html", "sealed")
    result = bench.run("report", "--help")
    check(result.code == 0 and "FOLDER/report.html" in result.out, "help", result)


def two_groups(bench, name):
    """Trains two groups that learn from each other. @return what was printed"""
    return bench.trained(f"name={name}", "train.strategy=codistill", "cluster.groups=2", "train.steps=40", "eval.every=20", "log.every=10",
                         "exchange.period=5", "distill.weight=0.1").err


def run_page(bench, folder):
    with open(bench.path(folder, "report.html"), encoding="utf-8") as file:
        return Page(file.read())


def runs(bench):
    """The page of a training: at its end, anew, while it goes on with a line half written, and watched until the end."""
    told = two_groups(bench, "t")
    check("the run's page: runs/t/report.html" in told, f"the path is not told: {told}")
    page = run_page(bench, "runs/t")
    says(page, "Finished after 40 steps. final.safetensors is ", "Quality on held-out data", "Losses", "Exchange between groups", "Staleness",
         "Gain", "Disagreement", "group 0 from 1", "group 1 from 0", "Time of a step", "codistill report runs/t", "period: 5")
    summary, rows = bench.summary("t"), bench.metrics("t", 0)
    says(page, f"{summary['psnr_y']:.2f} dB, PSNR of the Y channel; ", f"than bicubic, which has {summary['bicubic_psnr_y']:.2f} dB",
         "codistill, 2 groups of 1 rank", "allreduce would have sent ", " times as much", summary["machine"], "Held-out pictures")
    found = [(row["step"], row["bicubic_psnr_y"] == summary["bicubic_psnr_y"]) for row in rows if "bicubic_psnr_y" in row]
    check(found == [(20, True), (40, True)], f"bicubic where the model was evaluated, on the one picture: {found}")
    check("bicubic_psnr_y" not in bench.metrics("t", 1)[-1], "measured by each group")
    crops = bench.json("t", "crops.json")["crops"]
    check([image["label"] for image in crops[0]["images"]] == ["low", "bicubic", "ours", "truth"], f"{crops}")
    check(page.images[:4] == [bench.read("runs/t", image["png"]) for image in crops[0]["images"]], "other pictures")
    plot = bench.read("runs/t/report.html").decode().split('aria-label="PSNR of the Y channel"')[1].split("</svg>\n<figcaption")[0]
    check(">bicubic</text>" in plot and ">group 1</text>" in plot, "no line of bicubic")
    for k in range(2):
        bench.write(f"mine/a{k} <b>.png", made.png(90, 70, k))
    bench.write("mine/broken.png", made.png(90, 70)[:300])
    result = bench.run("report", "runs/t", "--low", "mine")
    check(result.code == 0 and "mine/broken.png: " in result.err, "photographs", result)
    page = run_page(bench, "runs/t")
    says(page, "Photographs without truth", "so there is no PSNR and no SSIM", "a1 <b>.png")
    versions = [image["png"] for crop in bench.json("t", "photographs.json")["crops"] for image in crop["images"]]
    check(len(versions) == 6 and all(bench.read("runs/t", name) in page.images for name in versions), f"{versions}")
    os.makedirs(bench.path("mine/none"))
    bench.refused("mine/none: no pictures", "report", "runs/t", "--low", "mine/none")
    check(pngs(bench, "runs/t") == [], "PNG files of a run's page")
    summary = bench.read("runs/t/summary.json")
    os.remove(bench.path("runs/t/summary.json"))
    with open(bench.path("runs/t/metrics.0.jsonl"), "a") as file:
        file.write('{"step": 41, "group": 0, "loss": 0.1}\nno row\n{"step": 20, "task_loss": 1e300}\n{"step": 22, "ta')
    check(bench.run("report", "runs/t").code == 0, "a run that goes on")
    page = run_page(bench, "runs/t")
    says(page, "Not finished: step 40 so far.")  # of group 1; group 0 went back to step 20
    check("Finished" not in page.text and b"http-equiv=\"refresh\"" not in bench.read("runs/t/report.html"), "finished, or loaded anew")
    watcher = bench.start("report", "runs/t", "--watch")
    deadline = time.monotonic() + 300
    while b"http-equiv=\"refresh\"" not in bench.read("runs/t/report.html") and time.monotonic() < deadline:
        time.sleep(0.1)
    check(watcher.poll() is None, "it does not wait for the run's end")
    bench.write("runs/t/summary.json", summary)
    result = bench.wait(watcher, ["report", "--watch"])
    check(result.code == 0 and "open runs/t/report.html in a browser" in result.out, "watching", result)
    check(b"http-equiv=\"refresh\"" not in bench.read("runs/t/report.html"), "the page of a finished run is loaded anew")
    bench.write("runs/t/summary.json", '{"name": ')
    result = bench.run("report", "runs/t")
    check(result.code == 1 and "runs/t/summary.json: " in result.err, "a summary that is no JSON", result)
    bench.write("begun/config.yaml", "name: begun\n")
    result = bench.run("report", "begun")
    check(result.code == 1 and "'begun' holds no metrics.GROUP.jsonl: the run has told nothing yet" in result.err, "nothing yet", result)
    bench.write("c/compare.json", "{}")
    bench.refused("only a run can be watched", "report", "c", "--watch")


def mutate(rng, value, share):
    """The value with some of its members gone, null, or of another kind."""
    if rng.random() < share:
        return rng.choice([None, True, -1, 0, 1e300, 1e-300, 7.5, "", "nan", [], {}, [[]], [1], {"name": "x"}, "é" * 40])
    if isinstance(value, dict):
        return {key: mutate(rng, item, share) for key, item in value.items() if rng.random() > share / 2}
    if isinstance(value, list):
        return [mutate(rng, item, share) for item in value if rng.random() > share / 2]
    return value


def mutated(seeds):
    """Whatever else a comparison holds, a page comes of it."""
    def case(bench):
        base = made.classification(2, ("none", "20mbit"), made.ARMS[2:5])
        base["crops"] = made.pictures(bench, "m")["crops"]
        for run in (run for arm in base["arms"] for run in arm["runs"]):
            run["curve"] = run["curve"][::5]
        for seed in seeds:
            document = mutate(random.Random(seed), copy.deepcopy(base), (0.01, 0.05, 0.2)[seed % 3])
            document = dict(document if isinstance(document, dict) else {}, format="codistill-compare-1")
            try:
                written(bench, "m", document)
            except Failure as failure:
                raise Failure(f"seed {seed}: {failure}") from None
    return case


# Runs in the page: what sticks out sideways, and texts of one drawing that lie over each other.
MEASURE = """(() => {
  const root = document.documentElement, found = [];
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} px wide`);
  document.querySelectorAll('main > section > *, main > *, figure, .crop img').forEach(e => {
    const box = e.getBoundingClientRect();
    if (box.right > root.clientWidth + 1 || box.left < -1) found.push(`<${e.tagName} class=${e.className}> from ${box.left} to ${box.right}`);
  });
  document.querySelectorAll('.figures svg').forEach(svg => {
    const edge = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map(t => [t.lastChild ? t.lastChild.textContent : '', t.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => {
      if (p.left < edge.left - 2 || p.right > edge.right + 2 || p.bottom > edge.bottom + 2) found.push(`'${a}' leaves its drawing`);
      texts.slice(i + 1).forEach(([b, q]) => {
        if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 4 && q.top < p.bottom - 4) found.push(`'${a}' lies over '${b}'`);
      });
    });
  });
  return found;
})()"""
# Whether the column of what is sent between groups can be seen as the page is; null: there is none.
SENT = """(() => { const head = [...document.querySelectorAll('.figures-table thead th')].find(e => e.textContent.startsWith('sent between'));
  return head ? head.getBoundingClientRect().right <= head.closest('.scroll').getBoundingClientRect().right : null; })()"""
LUMINANCE = """(() => { const l = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => (x /= 255) <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
  return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const paper = l(getComputedStyle(document.body).backgroundColor), ink = c => { const i = l(c); return (Math.max(i, paper) + .05) / (Math.min(i, paper) + .05); };
  return {paper, text: Math.min(...[...document.querySelectorAll('p, td, th, dd, dt, figcaption, li, strong, small')].map(e => ink(getComputedStyle(e).color))),
    drawn: Math.min(...[...document.querySelectorAll('svg text, [class^=m]')].map(e => ink(getComputedStyle(e).fill)))}; })()"""


def in_browser(bench):
    """Each report at desktop and phone width in both schemes: nothing overflows, overlaps or pales. $COD_TEST_SHOTS keeps screenshots of all."""
    program = browser.find()
    if program is None:
        raise Skip(f"no browser: {', '.join(browser.NAMES)}")
    shots = os.environ.get("COD_TEST_SHOTS")
    os.makedirs(shots or bench.path("shots"), exist_ok=True)
    many = [(f"{name}_{k}", *rest) for k in range(2) for name, *rest in made.ARMS]
    documents = {"classification": made.classification(), "pictures": made.pictures(bench, "pictures"), "incomplete": made.incomplete(),
                 "hostile": made.hostile(), "many": made.classification(2, ("none", "1gbit", "200mbit", "20mbit"), many)}
    documents["many"]["baseline"] = "allreduce_0"
    view = browser.Browser(program, bench.path("tmp"))
    try:
        two_groups(bench, "run")
        for name, document in [*documents.items(), ("runs/run", None)]:
            if document is not None:
                written(bench, name, document)
            for width in (1280, 390):
                for dark in (False, True):
                    where = f"{name}, {width} px, {'dark' if dark else 'light'}"
                    view.open(bench.path(name, "report.html"), width, 900, dark)
                    view.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                    found = view.evaluate(MEASURE) + view.complaints()
                    check(not found, f"{where}: {found[:10]}")
                    seen = view.evaluate(SENT)
                    check(width < 1280 or seen in (None, True), f"{where}: 'sent between groups' is seen only by scrolling")
                    light = view.evaluate(LUMINANCE)
                    check(light["paper"] < 0.05 if dark else light["paper"] > 0.8, f"{where}: paper {light}")
                    check(light["text"] >= 4.5 and light["drawn"] >= 3, f"{where}: contrast {light}")  # WCAG 2.1, 1.4.3 and 1.4.11
                    if shots or name == "pictures":
                        path = os.path.join(shots or bench.path("shots"), f"{name.replace('/', '-')}-{width}-{'dark' if dark else 'light'}.png")
                        view.screenshot(path)
                        check(os.path.getsize(path) > 50000, f"{where}: an empty screenshot")
    finally:
        view.close()


CASES = {"classification": classification, "removed": removed, "verdicts": verdicts, "crossing": crossing, "pictures": pictures, "incomplete": incomplete,
         "hostile": hostile, "broken": broken, "runs": runs, "mutated": mutated(range(12)), "mutated-few": mutated(range(12, 15)), "browser": in_browser}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
