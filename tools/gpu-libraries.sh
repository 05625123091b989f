#!/usr/bin/env bash
# Prints the folders with libraries of NVIDIA's Python wheels (cuDNN, cuBLASLt, NCCL), joined by colons, for the end of LD_LIBRARY_PATH: what
# was built on another machine looks for them where they lie there.
python3 - <<'PY' 2>/dev/null
import glob, sys
print(":".join(dict.fromkeys(folder for path in sys.path if path for folder in sorted(glob.glob(f"{glob.escape(path)}/nvidia/*/lib")))))
PY
