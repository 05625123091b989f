"""PyTorch's side of step_vs_pytorch: a training step of a network as a good user writes it, on our weights and our batch.

step_pytorch.py FOLDER VARIANT THREADS: FOLDER holds model.safetensors and batch.safetensors as `codistill bench step --export` writes
them; VARIANT is {f32,bf16}-{eager,compile}. Runs a step at once and then one for each line read; each is answered by {"ms", "loss"}.
"""
import json
import pathlib
import sys
import time

import torch

import networks


def read_safetensors(path):
    """(tensors by name, metadata); a format simple enough not to need its library."""
    data = bytearray(pathlib.Path(path).read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        first, last = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[end + first:end + last], dtype=torch.float32).reshape(entry["shape"])
    return tensors, metadata


def main(folder, variant, threads):
    torch.set_num_threads(int(threads))
    precision, mode = variant.split("-")
    weights, metadata = read_safetensors(f"{folder}/model.safetensors")
    model = metadata["codistill.model"]
    net = networks.make(model, json.loads(metadata["codistill.options"]))
    net.load_state_dict(weights, strict=True)
    net = net.to(memory_format=torch.channels_last).train()
    batch, _ = read_safetensors(f"{folder}/batch.safetensors")
    # Our pictures are NHWC: seen as NCHW they are channels-last, without a copy.
    data, target = (batch[name].permute(0, 3, 1, 2) for name in ("input", "target"))
    assert data.is_contiguous(memory_format=torch.channels_last)
    target = target.flatten(1) if model in networks.CLASSIFIERS else target
    adam = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    forward = torch.compile(net) if mode == "compile" else net

    def step():
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            output = forward(data)
        loss = networks.loss_of(model, output, target)
        loss.backward()
        adam.step()
        return loss

    while True:
        start = time.perf_counter()
        loss = step()
        ms = 1e3 * (time.perf_counter() - start)
        print(json.dumps({"ms": ms, "loss": loss.item(), "version": torch.__version__}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
