#!/usr/bin/env python3
"""The tables of docs/evidence.md, from what `codistill compare` wrote: docs/notebook/evidence.py FOLDER-compare ...; --help has its options"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools/bench"))
import common
import peak_bytes


def mean_and_deviation(values, digits):
    values = [value for value in values if value is not None]
    if not values:
        return ""
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def table(head, rows):
    """Markdown, without the columns that are empty in all rows."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [[head[i] for i in kept], ["---"] + ["---:"] * (len(kept) - 1)]
    for row in rows:
        lines.append([row[i] for i in kept])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def upscaled(runs, pictures, program):
    """Of each run, what its groups' own models reach on other pictures: the mean of their PSNR, dB."""
    for run in runs:
        models = sorted(pathlib.Path(run["folder"]).glob("group.*.safetensors")) or [pathlib.Path(run["folder"]) / "final.safetensors"]
        yield statistics.mean(json.loads(subprocess.run([program, "eval", model, "--data", pictures, "--json"], check=True, capture_output=True)
                                         .stdout)["mean"]["psnr_y"] for model in models)


def rows_of(compared, by_group, peaks, pictures, program):
    metric, digits = compared["metric"], compared["metric"]["digits"]
    of_kind = {kind: {row["arm"]: row["percent"] for row in compared.get("churn", {}).get(kind, [])} for kind in ("between_groups", "between_seeds")}
    groups = max(len(run["group_quality"]) for arm in compared["arms"] for run in arm["runs"] if run["state"] == "finished") if by_group else 0
    publication = peak_bytes.largest_publication(compared) if peaks else 0
    head = ["arm", "tuned to", "link", f"{metric['label']}, {metric['unit']}", *(f"group {g}" for g in range(groups)),
            f"PSNR on {pictures.name}, dB" if pictures else "", "cross entropy",
            "calibration error, %", "churn of groups, %", "of retrainings, %", "between groups, MB",
            "a group sends, MB" if peaks else "", "peak, kB a step" if peaks else "", "ms a step", "seeds"]
    rows = []
    for arm in compared["arms"]:
        for rate in dict.fromkeys(run["rate"] for run in arm["runs"]):
            runs = [run for run in arm["runs"] if run["rate"] == rate and run["state"] == "finished"]
            if not runs:
                continue
            churn = [f"{of_kind[kind][arm['name']]:.1f}" if arm["name"] in of_kind[kind] else "" for kind in of_kind]
            chosen = [candidate for candidate in arm.get("tuned", {}).get("candidates", []) if candidate["chosen"]]
            sent = [peak_bytes.columns(arm, run, publication) for run in runs] if peaks else []
            rows.append([arm["name"], " ".join(chosen[0]["set"]).replace("train.", "") if chosen else "",
                         rate if len(compared["rates"]) > 1 else "", mean_and_deviation([run["quality"] for run in runs], digits),
                         *(mean_and_deviation([run["group_quality"][g] for run in runs if g < len(run["group_quality"])], digits) for g in range(groups)),
                         mean_and_deviation(list(upscaled(runs, pictures, program)), 2) if pictures else "",
                         mean_and_deviation([run["metrics"].get("test_cross_entropy") for run in runs], 3),
                         mean_and_deviation([run["metrics"].get("test_calibration_error") for run in runs], 1), *churn,
                         f"{statistics.mean(run['bytes']['between'] for run in runs) / 1e6:.1f}",
                         f"{statistics.mean(total for total, _ in sent):.2f}" if peaks else "",
                         f"{max(peak for _, peak in sent):.0f}" if peaks else "",
                         f"{statistics.mean(run['step_ms']['total'] for run in runs):.1f}", str(len(runs))])
    return head, rows


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--groups", action="store_true", help="a column for each group's own model")
    parser.add_argument("--peaks", action="store_true", help="columns of what a group sends, in all and at most in a step (peak_bytes.py)")
    parser.add_argument("--pictures", type=pathlib.Path, help="a column of super-resolution on these")
    parser.add_argument("--codistill", metavar="FILE", help="the command that upscales (build/release/codistill)")
    arguments = parser.parse_args(argv)
    program = common.find_program(arguments.codistill) if arguments.pictures else None
    for folder in arguments.folders:
        compared = json.loads((folder / "compare.json").read_text())
        print(f"{compared['title']}: {compared['budget']['text']}, {compared['machine']}, {compared['version']}\n")
        print(table(*rows_of(compared, arguments.groups, arguments.peaks, arguments.pictures, program)) + "\n")


if __name__ == "__main__":
    sys.exit(common.run(main))
