"""See niqe_vs_pyiqa.sh."""
import json
import os
import pathlib
import statistics
import sys

from common import (ROOT, Failure, Server, check_realtime, check_threads, describe_machine, environment, largest, parse, parser, quartiles,
                    run, say, spread, take_turns)

TOLERANCE = 1e-3
WHAT = """\
Times NIQE of pictures against pyiqa on this machine, and compares the values. Ours takes one core for a picture; pyiqa may take as many as
--threads says. Both take turns, all pictures in each, decoded before, each in a process of its own.

pyiqa differs from the authors' MATLAB release in two things. Its gray is by 0.299, 0.587 and 0.114, MATLAB's rgb2gray by 0.298936, 0.587043
and 0.114021, so that up to one pixel in 200 is another. Its window is rounded to f32, so that what flat windows (white margins, black) keep
of their value is counted, with one sign. MATLAB's flat windows keep the rest of sums in f64, whose signs depend on the order of sums; we count
them as 0. pyiqa's own code with these three steps as ours must give our values (difference 1e-3), else the comparison fails.

pyiqa is installed by pip in ~/.cache/codistill/venv-pyiqa, or taken from the virtual environment COD_BENCH_VENV.

The last line: ratio_1t X ratio_2t Y, pyiqa's median over ours where pyiqa may take 1 and 2 threads."""


def find_pictures(folder):
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg") and "_LR" not in path.name)
    if not paths:
        raise Failure(f"{folder} holds no PNG or JPEG pictures; name a folder with --data, or the shared data in COD_DATA")
    return paths


def compare_values(pictures, us, them):
    say(f"  {'':32s} {'ours':>10s} {'pyiqa':>10s} {'difference':>11s} {'pyiqa, mended':>14s} {'difference':>11s}")
    for i, path in enumerate(pictures):
        ours, theirs, mended = us["niqe"][i], them["niqe"][i], them["mended"][i]
        say(f"  {path.name:32.32s} {ours:10.6f} {theirs:10.6f} {abs(theirs - ours):11.1e} {mended:14.6f} {abs(mended - ours):11.1e}")
    worst = largest(abs(a - b) for a, b in zip(us["niqe"], them["mended"]))
    if not worst <= TOLERANCE:
        raise Failure(f"our values are not those of pyiqa's code with MATLAB's gray and flat windows: they differ by {worst:.2g}, "
                      f"allowed {TOLERANCE:.0e}")


def compare(arguments, python, model, pictures, threads):
    with Server([arguments.codistill, "bench", "niqe", "--serve", "--niqe-model", model / "niqe_pris_params.npz", *pictures], threads,
                arguments.realtime) as us, \
            Server([python, pathlib.Path(__file__).with_name("niqe_pyiqa.py"), model / "modelparameters.mat", threads, *pictures], threads,
                   arguments.realtime) as them:
        compare_values(pictures, us.answers[0], them.answers[0])
        times = take_turns([us, them], arguments.pairs)
        medians = [statistics.median(t) for t in times]
        low, high = quartiles([b / a for a, b in zip(*times)])
        for i, (name, server) in enumerate((("Codistill", us), (f"pyiqa {them.answers[0]['version']}", them))):
            say(f"  {name:16s} {spread(times[i])}; {medians[i] / len(pictures):.1f} ms a picture; peak RSS {server.rss_mib():.0f} MiB")
        say(f"  ratio {medians[1] / medians[0]:.2f} (of single pairs: quartiles {low:.2f} and {high:.2f})")
        return {"threads": threads, "ratio": medians[1] / medians[0], "ours_ms": times[0], "pyiqa_ms": times[1],
                "ours": us.answers[0]["niqe"], "pyiqa": them.answers[0]["niqe"], "mended": them.answers[0]["mended"]}


def main(argv):
    data = pathlib.Path(os.environ.get("COD_DATA", ROOT / "data"))
    p = parser("niqe_vs_pyiqa.sh", WHAT)
    p.add_argument("--data", type=pathlib.Path, default=data / "set5", metavar="DIR", help="pictures (Set5)")
    p.add_argument("--model", type=pathlib.Path, default=data / "niqe", metavar="DIR",
                   help="folder of niqe_pris_params.npz and of modelparameters.mat, which say the same (niqe of the shared data)")
    arguments = parse(p, argv)
    pictures = find_pictures(arguments.data)
    for name in ("niqe_pris_params.npz", "modelparameters.mat"):
        if not (arguments.model / name).is_file():
            raise Failure(f"{arguments.model / name} is not there; name its folder with --model")
    report = {"machine": describe_machine(), "results": []}
    check_realtime(arguments)
    counts = check_threads(arguments)
    python = environment("pyiqa", ["pyiqa", "scipy"], "/opt/codpyiqa")
    for threads in counts:
        say(f"{len(pictures)} pictures; pyiqa on {threads} thread{'s' if threads > 1 else ''}; {arguments.codistill}")
        report["results"].append(compare(arguments, python, arguments.model, pictures, threads))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    say(" ".join(f"ratio_{r['threads']}t {r['ratio']:.2f}" for r in report["results"]))


if __name__ == "__main__":
    sys.exit(run(main))
