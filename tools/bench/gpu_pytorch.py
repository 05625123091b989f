"""PyTorch's side of gpu_steps.py: training steps in bf16 as a good user writes them.

usage: gpu_pytorch.py steps DEVICE FORMS MODEL OPTIONS N H W C
       gpu_pytorch.py limits

FORMS of a step, as a list: eager, compile (torch.compile), graph (torch.compile, and the whole step in one CUDA graph: PyTorch's
strongest form). Prints a line of JSON when all are ready, and one for each line read, which names a form. limits prints what the
card reaches: a large product of bf16 matrices, and a copy.
"""
import json
import statistics
import sys
import time

import torch

import networks

TURN_S = 0.06  # what an answer's steps take, or one step
GRAPH_STEPS = 4
WARM_STEPS = 4


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Form:
    """A step in one of the forms, with a model of its own."""

    def __init__(self, name, device, model, options, shape):
        self.device = device
        n, h, w, c = shape
        self.net = networks.make(model, options).to(device).to(memory_format=torch.channels_last)
        x = networks.channels_last(torch.rand(n, c, h, w, device=device))
        with torch.no_grad():
            shape = self.net.eval()(x[:1]).shape
        self.net.train()
        y = torch.rand(n, *shape[1:], device=device)
        target = networks.channels_last(y) if y.dim() == 4 else torch.nn.functional.one_hot(y.argmax(1), y.shape[1]).float()
        optimiser = networks.optimiser(model, self.net, device)
        self.optimiser = type(optimiser).__name__.lower()
        forward = self.net if name == "eager" else torch.compile(self.net)

        def step():
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16):
                output = forward(x)
            networks.loss_of(model, output, target).backward()
            optimiser.step()

        base = self.start_memory()
        begin = time.perf_counter()
        step()
        finish(device)
        self.first_s = time.perf_counter() - begin
        for _ in range(WARM_STEPS):
            step()
        self.run, self.inside = step, 1
        if name == "graph":
            self.run, self.inside = self.captured(step), GRAPH_STEPS
        self.peak_mib = (torch.cuda.max_memory_allocated() - base) / 2**20 if device == "cuda" else 0
        self.runs = 1
        self.runs = max(1, min(200, int(1e3 * TURN_S / (self.turn() * self.inside))))

    def start_memory(self):
        """What is taken before this form begins to run: its model belongs to it."""
        if self.device != "cuda":
            return 0
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() - sum(p.numel() * p.element_size() for p in self.net.parameters())

    @staticmethod
    def captured(step):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_STEPS):
                step()
        return graph.replay

    def turn(self):
        """Milliseconds of a step."""
        finish(self.device)
        begin = time.perf_counter()
        for _ in range(self.runs):
            self.run()
        finish(self.device)
        return 1e3 * (time.perf_counter() - begin) / (self.runs * self.inside)


def serve(device, names, model, options, *shape):
    if device == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())  # captures may not touch the legacy stream
        torch.backends.cudnn.benchmark = True
    forms, ready = {}, {}
    for name in names.split(","):
        try:
            forms[name] = Form(name, device, model, options, [int(n) for n in shape])
            ready[name] = {"first_s": round(forms[name].first_s, 2), "peak_mib": round(forms[name].peak_mib), "optimiser": forms[name].optimiser}
        except Exception as error:  # noqa: BLE001: one form that PyTorch cannot do must not hide the others
            ready[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps({"forms": ready, "version": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"ms": forms[line.strip()].turn()}), flush=True)


def seconds(run, count):
    """Of one run, the median of some rounds."""
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count)
    return statistics.median(times[1:])


def limits():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randint(255, (1 << 30,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    tflops = 2 * 8192**3 / seconds(lambda: a @ b, 10) / 1e12
    gbytes = 2 * source.numel() / seconds(lambda: target.copy_(source), 10) / 1e9
    print(json.dumps({"tflops": round(tflops, 1), "gbytes": round(gbytes, 1), "card": torch.cuda.get_device_name(),
                      "version": torch.__version__, "cudnn": torch.backends.cudnn.version()}))


if __name__ == "__main__":
    {"steps": serve, "limits": limits}[sys.argv[1]](*sys.argv[2:])
