#!/usr/bin/env python3
"""Another user does harm in the folders of groups that train: python3 test_adversary.py CODISTILL [CASE ...]. adversary.py does the same for minutes."""

import json
import os
import sys

from adversary import Exchange, RunFolder
from train_support import run_cases

SEED = int(os.environ.get("COD_SEED", "1"))


def siege(make, *run):
    def case(bench):
        place = make(bench)
        try:
            print(f"      {json.dumps(place.run(*run))}", flush=True)
        finally:
            place.close()
    return case


CASES = {
    "sealed": siege(lambda bench: Exchange(bench, SEED, True, 0), 120, 0.02, 120, 2),
    "open": siege(lambda bench: Exchange(bench, SEED, False, 0), 120, 0.02, 120, 2),
    "run-folder": siege(lambda bench: RunFolder(bench, SEED), 40, 0.1, 120),
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
