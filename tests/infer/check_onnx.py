"""Compares exported ONNX files, run by onnxruntime, with our own inference.

check_onnx.py EXPORT_FILES [BACKEND] -> exit 0 when all agree, 77 where onnx or onnxruntime is not installed.
"""
import sys

try:
    import numpy as np, onnx, onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import exported

TOLERANCE = 1e-4  # f32, another order of summing; the requirement is 1e-3
SIZES = {"srresnet": 2, "srresnet_skip": 2, "srresnet_once": 2, "msrresnet_2": 2, "msrresnet_3": 2, "msrresnet_4": 2,
         "rrdb": 2, "rrdb_2": 2, "edsr_2": 2, "edsr_3": 2, "edsr_4": 2, "compact_2": 2, "compact_3": 2, "compact_4": 2,
         "mlp": 1, "mlp_pictures": 1, "logistic": 1, "cnn": 1, "cnn_strides": 1, "resnet18": 1, "resnet50": 1, "odd": 1}


def main(program, backend="ref"):
    folder, good = exported.export(program, backend), True
    for name, sizes in SIZES.items():
        path = f"{folder.name}/{name}.onnx"
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        ops = {node.op_type for node in model.graph.node}
        assert model.ir_version == 8 and model.opset_import[0].version == 17
        assert name == "odd" or "BatchNormalization" not in ops, "normalisation is not folded"
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        ran = 0
        for x, expected in exported.cases(folder.name, name):
            nchw = np.ascontiguousarray(np.moveaxis(x, -1, 1))
            if len(session.get_inputs()[0].shape) == 2:
                nchw = nchw.reshape(len(nchw), -1)
            good &= exported.check(f"{name}.onnx", session.run(["output"], {"input": nchw})[0], expected, TOLERANCE)
            ran += 1
        assert ran == sizes, f"{name}: {ran} sizes"
    return 0 if good else 1


sys.exit(main(*sys.argv[1:]))
