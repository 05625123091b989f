"""ONNX Runtime's side of upscale_vs_onnxruntime: one picture through an exported model.

upscale_onnxruntime.py MODEL.onnx THREADS WIDTH HEIGHT INPUT OUTPUT: INPUT is raw f32 [H, W, 3]; the result of the first run goes to OUTPUT
likewise. Runs once at once and then once for each line read; each is answered by {"ms"}.
"""
import json
import sys
import time

import numpy as np
import onnxruntime


def main(model, threads, width, height, source, target):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    picture = np.fromfile(source, np.float32).reshape(1, int(height), int(width), 3)
    low = np.ascontiguousarray(np.moveaxis(picture, -1, 1))
    first = True
    while True:
        start = time.perf_counter()
        high = session.run(["output"], {"input": low})[0]
        ms = 1e3 * (time.perf_counter() - start)
        if first:
            np.ascontiguousarray(np.moveaxis(high, 1, -1)).tofile(target)
            first = False
        print(json.dumps({"ms": ms, "version": onnxruntime.__version__}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
