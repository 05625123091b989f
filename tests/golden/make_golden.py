#!/usr/bin/env python3
"""Writes golden.bin: what PyTorch gives for each op of core/backend.h, in f64 and in our layout.

    /opt/codvenv/bin/python tests/golden/make_golden.py

Each case is one cod_op: kind, attributes, inputs, outputs before (where the op reads them) and expected outputs.
Tensors are NHWC, convolution weights OHWI, vectors {1,1,1,C}. Attributes are rounded to f32 first, as cod_op_attr holds them.

Format, little endian, no padding:
    "CODG", u32 version = 1, u32 number of cases; then for each case
    string name, string kind (cod_op_kind_name), u8 accumulate,
    u32 number of attributes, each: string field of cod_op_attr, f64 value (enumerators by number)
    u32 number of tensors, each: u8 role (0 input, 1 output before, 2 output expected), u8 index, u8 type (0 f64, 1 i32),
        u32 N, H, W, C, elements
    string = u8 length, bytes
"""

import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(20240229)
cases = []

ACT = {"none": 0, "relu": 1, "leaky": 2, "prelu": 3, "sigmoid": 4, "tanh": 5}
LEAK = float(np.float32(0.2))


def f32(value):
    return float(np.float32(value))


def nhwc(tensor):
    """Our layout: images NCHW -> NHWC (weights OIHW -> OHWI alike), matrices {N,1,1,C}, vectors {1,1,1,C}."""
    array = tensor.detach().numpy().copy()  # optimisers update in place
    if array.ndim == 4:
        return array.transpose(0, 2, 3, 1)
    if array.ndim == 2:
        return array[:, None, None, :]
    return array.reshape(1, 1, 1, -1)


def case(name, kind, attr, inputs, outputs, before=None, accumulate=False):
    """inputs, outputs, before: {index: tensor}"""
    tensors = [(role, index, nhwc(t)) for role, group in enumerate((inputs, before or {}, outputs))
               for index, t in group.items() if t is not None]
    cases.append((name, kind, accumulate, attr, tensors))


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


def activate(kind, x, slope=None):
    return {"none": lambda: x, "relu": lambda: F.relu(x), "leaky": lambda: F.leaky_relu(x, LEAK),
            "prelu": lambda: F.prelu(x, slope), "sigmoid": lambda: torch.sigmoid(x), "tanh": lambda: torch.tanh(x)}[kind]()


def act_attr(kind):
    return {"activation": ACT[kind], "leak": LEAK}


def slope_of(kind, channels, shared=False):
    return (torch.rand(1 if shared else channels) * 0.4 + 0.05).requires_grad_() if kind == "prelu" else None


def convolutions():
    for n, h, w, i, o, k, stride, pad, act, bias in [
            (2, 5, 6, 3, 4, (3, 3), (1, 1), (1, 1), "prelu", True), (1, 7, 7, 2, 3, (3, 3), (2, 2), (1, 1), "relu", True),
            (2, 6, 5, 4, 2, (1, 1), (1, 1), (0, 0), "none", False), (1, 9, 8, 3, 2, (5, 3), (2, 3), (2, 0), "leaky", True),
            (1, 9, 9, 2, 3, (9, 9), (1, 1), (4, 4), "tanh", True), (1, 4, 4, 3, 5, (4, 4), (1, 1), (0, 0), "sigmoid", False),
            (1, 8, 8, 3, 4, (4, 4), (2, 2), (1, 1), "none", True)]:
        x, weight, b = leaf(n, i, h, w), leaf(o, i, *k), leaf(o) if bias else None
        attr = {"stride_h": stride[0], "stride_w": stride[1], "pad_h": pad[0], "pad_w": pad[1]}
        slope = slope_of(act, o)
        name = f"{k[0]}x{k[1]} {i}->{o} stride {stride} pad {pad} {act}"
        y = F.conv2d(x, weight, b, stride, pad)
        case(name, "conv2d", attr | act_attr(act), {0: x, 1: weight, 2: b, 3: slope}, {0: activate(act, y, slope)})
        dy = torch.randn_like(y)
        y.backward(dy)
        case(name, "conv2d_backward_data", attr, {0: dy, 1: weight}, {0: x.grad})
        case(name, "conv2d_backward_weights", attr, {0: x, 1: dy}, {0: weight.grad, 1: b.grad if bias else None})
        old = torch.randn_like(weight)
        case(name + " accumulate", "conv2d_backward_weights", attr, {0: x, 1: dy}, {0: weight.grad + old}, {0: old}, True)


def linears():
    for n, i, o, act, bias in [(4, 7, 5, "none", True), (3, 6, 2, "relu", True), (1, 3, 4, "prelu", False)]:
        x, weight, b = leaf(n, i), leaf(o, i), leaf(o) if bias else None
        slope = slope_of(act, o)
        y = F.linear(x, weight, b)
        pre = y.detach()
        activated = activate(act, pre.reshape(n, o), slope)
        name = f"{i}->{o} {act}"
        case(name, "linear", act_attr(act), {0: x, 1: weight, 2: b, 3: slope}, {0: activated})
        dy = torch.randn_like(y)
        y.backward(dy)
        case(name, "linear_backward_data", {}, {0: dy, 1: weight}, {0: x.grad})
        case(name, "linear_backward_weights", {}, {0: x, 1: dy}, {0: weight.grad, 1: b.grad if bias else None})


def norms():
    for act, shared in [("none", False), ("relu", False), ("leaky", False), ("prelu", False), ("prelu", True),
                        ("sigmoid", False), ("tanh", False)]:
        c, epsilon, momentum = 3, f32(1e-5), f32(0.1)
        x, gamma, beta, slope = leaf(2, c, 3, 4), leaf(c), leaf(c), slope_of(act, c, shared)
        running_mean, running_var = torch.randn(c), torch.rand(c) + 0.5
        old_mean, old_var = running_mean.clone(), running_var.clone()
        attr = {"epsilon": epsilon, "momentum": momentum} | act_attr(act)
        name = act + (" shared" if shared else "")
        fixed = F.batch_norm(x, running_mean, running_var, gamma, beta, False, momentum, epsilon)
        case(name, "norm_inference", attr, {0: x, 1: gamma, 2: beta, 3: old_mean, 4: old_var, 5: slope},
             {0: activate(act, fixed, slope)})
        y = activate(act, F.batch_norm(x, running_mean, running_var, gamma, beta, True, momentum, epsilon), slope)
        mean = x.mean((0, 2, 3))
        inv_std = 1 / torch.sqrt(x.var((0, 2, 3), unbiased=False) + epsilon)
        case(name, "norm_train", attr, {0: x, 1: gamma, 2: beta, 3: slope},
             {0: y, 1: mean, 2: inv_std, 3: running_mean, 4: running_var}, {3: old_mean, 4: old_var})
        dy = torch.randn_like(y)
        y.backward(dy)
        case(name, "norm_backward", attr, {0: x, 1: dy, 2: gamma, 3: beta, 4: mean, 5: inv_std, 6: slope},
             {0: x.grad, 1: gamma.grad, 2: beta.grad, 3: slope.grad if slope is not None else None})
    for bias in (True, False):
        x, weight, b = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3), torch.randn(3) if bias else None
        gamma, beta, mean, var = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3) + 0.5
        scale = gamma / torch.sqrt(var + epsilon)
        folded, shift = weight * scale[:, None, None, None], ((b if bias else 0) - mean) * scale + beta
        whole = F.batch_norm(F.conv2d(x, weight, b), mean, var, gamma, beta, False, 0.1, epsilon)
        assert torch.allclose(F.conv2d(x, folded, shift), whole)
        case(f"bias {bias}", "fold_norm", {"epsilon": epsilon}, {0: weight, 1: b, 2: gamma, 3: beta, 4: mean, 5: var},
             {0: folded, 1: shift})


def frozen_norms():
    """The gradient through a normalisation whose statistics and parameters are constants, and training that moves no statistics."""
    for act, shared in [("none", False), ("relu", False), ("leaky", False), ("prelu", False), ("prelu", True),
                        ("sigmoid", False), ("tanh", False)]:
        c, epsilon, momentum = 3, f32(1e-5), f32(0.1)
        x, gamma, beta, slope = leaf(2, c, 3, 4), torch.randn(c), torch.randn(c), slope_of(act, c, shared)
        mean, var = torch.randn(c), torch.rand(c) + 0.5
        attr = {"epsilon": epsilon, "momentum": momentum} | act_attr(act)
        name = act + (" shared" if shared else "")
        y = activate(act, F.batch_norm(x, mean, var, gamma, beta, False, momentum, epsilon), slope)
        dy = torch.randn_like(y)
        y.backward(dy)
        case(name, "norm_inference_backward", attr, {0: x, 1: dy, 2: gamma, 3: beta, 4: mean, 5: var, 6: slope},
             {0: x.grad})
        y = activate(act, F.batch_norm(x, None, None, gamma, beta, True, momentum, epsilon), slope)
        inv_std = 1 / torch.sqrt(x.var((0, 2, 3), unbiased=False) + epsilon)
        case(name + " frozen", "norm_train", attr, {0: x, 1: gamma, 2: beta, 3: slope},
             {0: y, 1: x.mean((0, 2, 3)), 2: inv_std})


def activations():
    for act, shared in [(a, False) for a in ACT] + [("prelu", True)]:
        x, slope = leaf(2, 5, 3, 2), slope_of(act, 5, shared)
        with torch.no_grad():
            x[0, 0, 0, 0] = 0
        y = activate(act, x, slope) * 1
        name = act + (" shared" if shared else "")
        case(name, "activation", act_attr(act), {0: x, 1: slope}, {0: y})
        dy = torch.randn_like(y)
        y.backward(dy)
        case(name, "activation_backward", act_attr(act), {0: x if act == "prelu" else y, 1: dy, 2: slope},
             {0: x.grad, 1: slope.grad if slope is not None else None})


def resizes():
    for factor in (2, 3):
        x = leaf(2, 3 * factor * factor, 3, 2)
        y = F.pixel_shuffle(x, factor)
        dy = torch.randn_like(y)
        y.backward(dy)
        case(f"r {factor}", "pixel_shuffle", {"factor": factor}, {0: x}, {0: y})
        case(f"r {factor}", "pixel_unshuffle", {"factor": factor}, {0: dy}, {0: x.grad})
    for mode, number in (("nearest", 0), ("bilinear", 1), ("bicubic", 2)):
        for factor, h, w in ((2, 4, 5), (3, 3, 2), (4, 2, 3), (2, 1, 1)):
            x = leaf(2, 2, h, w)
            y = F.interpolate(x, scale_factor=factor, mode=mode)
            dy = torch.randn_like(y)
            y.backward(dy)
            attr = {"factor": factor, "resize": number}
            case(f"{mode} x{factor} of {h}x{w}", "resize", attr, {0: x}, {0: y})
            case(f"{mode} x{factor} of {h}x{w}", "resize_backward", attr, {0: dy}, {0: x.grad})


def max_pool_index(flat, x, y, kernel, stride, pad):
    """PyTorch gives positions in the image; ours are positions in the window."""
    row, column = flat // x.shape[3], flat % x.shape[3]
    top = torch.arange(y.shape[2])[:, None] * stride[0] - pad[0]
    left = torch.arange(y.shape[3])[None, :] * stride[1] - pad[1]
    return (row - top) * kernel[1] + column - left


def pools():
    for kernel, stride, pad, ties in [((2, 2), (2, 2), (0, 0), False), ((3, 3), (2, 2), (1, 1), False),
                                      ((3, 2), (1, 2), (1, 1), True), ((2, 3), (3, 1), (0, 1), True)]:
        for kind in ("max", "average"):
            x = torch.randint(-2, 3, (2, 3, 7, 6)).double() if ties else torch.randn(2, 3, 7, 6)
            x.requires_grad_()
            attr = {"kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1],
                    "pad_h": pad[0], "pad_w": pad[1], "pool": 0 if kind == "max" else 1}
            index = None
            if kind == "max":
                y, flat = F.max_pool2d(x, kernel, stride, pad, return_indices=True)
                index = max_pool_index(flat, x, y, kernel, stride, pad).int()
            else:
                y = F.avg_pool2d(x, kernel, stride, pad)
            dy = torch.randn_like(y)
            y.backward(dy)
            name = f"{kind} {kernel} stride {stride} pad {pad}"
            case(name, "pool", attr, {0: x}, {0: y, 1: index})
            case(name, "pool_backward", attr, {0: dy, 1: index}, {0: x.grad})
    x = leaf(2, 3, 4, 5)
    y = F.adaptive_avg_pool2d(x, 1)
    dy = torch.randn_like(y)
    y.backward(dy)
    case("global", "pool", {"pool": 2}, {0: x}, {0: y})
    case("global", "pool_backward", {"pool": 2}, {0: dy}, {0: x.grad})


def losses():
    epsilon = f32(1e-3)
    images = {"l1": (0, lambda p, t: F.l1_loss(p, t)), "mse": (1, lambda p, t: F.mse_loss(p, t)),
              "charbonnier": (2, lambda p, t: torch.sqrt((p - t) ** 2 + epsilon ** 2).mean())}

    def add(name, attr, prediction, target, function):
        alpha, weight = f32(0.75), torch.tensor([0.6])
        value = function(prediction, target)
        (value * alpha * weight).sum().backward()
        case(name, "loss", attr | {"alpha": alpha, "epsilon": epsilon}, {0: prediction, 1: target, 2: weight},
             {0: value.reshape(1), 1: prediction.grad})
        case(name + " unweighted", "loss", attr | {"alpha": 1, "epsilon": epsilon}, {0: prediction, 1: target},
             {0: value.reshape(1), 1: prediction.grad / (alpha * weight)})

    for name, (number, function) in images.items():
        prediction, target = leaf(2, 3, 4, 3), torch.randn(2, 3, 4, 3)
        target[0, 0, 0, 0] = prediction[0, 0, 0, 0].item()
        add(name, {"loss": number}, prediction, target, function)
    for temperature in (1, 3):
        def kl(p, t):
            return temperature ** 2 * F.kl_div(F.log_softmax(p / temperature, 1), F.softmax(t / temperature, 1),
                                               reduction="batchmean")
        add(f"kl T {temperature}", {"loss": 3, "temperature": temperature}, leaf(5, 7), torch.randn(5, 7), kl)
    add("kl of large logits", {"loss": 3, "temperature": 0}, (torch.randn(3, 4) * 300).requires_grad_(),
        torch.randn(3, 4) * 300,
        lambda p, t: F.kl_div(F.log_softmax(p, 1), F.log_softmax(t, 1), reduction="batchmean", log_target=True))
    one_hot, mixed = F.one_hot(torch.randint(0, 6, (5,)), 6).double(), torch.randn(5, 6).softmax(1)
    for name, target in (("one-hot", one_hot), ("mixed", mixed)):
        for smoothing in (0, f32(0.1)):
            def cross_entropy(p, t):
                return F.cross_entropy(p, t, label_smoothing=smoothing)
            attr = {"loss": 4, "smoothing": smoothing}
            add(f"cross entropy, {name}, smoothing {smoothing:g}", attr, leaf(5, 6), target, cross_entropy)
            add(f"cross entropy of large logits, {name}, smoothing {smoothing:g}", attr,
                (torch.randn(5, 6) * 300).requires_grad_(), target, cross_entropy)


def optimisers():
    rate, beta1, beta2, epsilon, momentum, decay = map(f32, (0.05, 0.9, 0.99, 1e-8, 0.9, 0.02))
    makers = {
        "sgd": (0, lambda p: torch.optim.SGD([p], rate), {}),
        "sgd decay": (0, lambda p: torch.optim.SGD([p], rate, weight_decay=decay), {"weight_decay": decay}),
        "sgd momentum": (0, lambda p: torch.optim.SGD([p], rate, momentum), {"momentum": momentum}),
        "sgd nesterov decay": (0, lambda p: torch.optim.SGD([p], rate, momentum, weight_decay=decay, nesterov=True),
                               {"momentum": momentum, "weight_decay": decay, "nesterov": 1}),
        "adam": (1, lambda p: torch.optim.Adam([p], rate, (beta1, beta2), epsilon), {}),
        "adam decay": (1, lambda p: torch.optim.Adam([p], rate, (beta1, beta2), epsilon, decay), {"weight_decay": decay}),
        "adamw": (2, lambda p: torch.optim.AdamW([p], rate, (beta1, beta2), epsilon, decay), {"weight_decay": decay}),
    }
    for name, (number, make, more) in makers.items():
        for max_norm in (0, f32(0.5), f32(100)):
            param = leaf(11)
            optimiser = make(param)
            m, v = torch.zeros(11), torch.zeros(11)
            attr = {"optimiser": number, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "max_norm": max_norm} | more
            for step in range(1, 4):
                grad, before = torch.randn(11), param.detach().clone()
                param.grad = grad.clone()
                norm = None
                if max_norm > 0:
                    norm = torch.nn.utils.clip_grad_norm_([param], max_norm).reshape(1)
                    if name == "sgd":
                        case(f"step {step}", "grad_norm", {}, {0: grad}, {0: norm})
                optimiser.step()
                state = optimiser.state[param]
                new_m = state.get("exp_avg", state.get("momentum_buffer"))
                new_v = state.get("exp_avg_sq")
                scalars = torch.tensor([rate, 1 - beta1 ** step, 1 - beta2 ** step, 0.0])
                case(f"{name} step {step} max_norm {max_norm:g}", "optimiser", attr, {0: grad, 1: scalars, 2: norm},
                     {0: param, 1: new_m, 2: new_v},
                     {0: before, 1: m if new_m is not None else None, 2: v if new_v is not None else None})
                m, v = (t.detach().clone() if t is not None else None for t in (new_m, new_v))


def elementwise():
    a, b, old = torch.randn(2, 3, 2, 2), torch.randn(2, 3, 2, 2), torch.randn(2, 3, 2, 2)
    attr = {"alpha": 2, "beta": f32(-0.3)}
    result = torch.add(attr["alpha"] * a, b, alpha=attr["beta"])
    case("two", "add", attr, {0: a, 1: b}, {0: result})
    case("accumulate", "add", attr, {0: a, 1: b}, {0: result + old}, {0: old}, True)
    case("scale", "add", attr, {0: a}, {0: 2 * a})
    case("fill", "fill", attr, {}, {0: torch.full((2, 3, 2, 2), 2.0)})
    decay = torch.tensor([0.97])
    averaged = old.reshape(-1).lerp(a.reshape(-1), 1 - decay)
    case("ema", "ema", {}, {0: a.reshape(-1), 1: decay}, {0: averaged}, {0: old.reshape(-1)})


def target_gradients():
    """Losses of two sides that both have a gradient, total variation, and the mean over the batch."""
    epsilon, smoothing = f32(1e-3), f32(0.1)

    def add(name, attr, prediction, target, function, accumulate=False):
        alpha, weight = f32(0.75), torch.tensor([0.6])
        value = function(prediction, target)
        (value * alpha * weight).sum().backward()
        inputs = {0: prediction, 1: target, 2: weight}
        sides = {1: prediction.grad, 2: target.grad if target is not None else None}
        before = {k: torch.randn_like(g) for k, g in sides.items() if g is not None} if accumulate else {}
        sides = {k: g + before.get(k, 0) if g is not None else None for k, g in sides.items()}
        case(name + (" accumulate" if accumulate else ""), "loss", attr | {"alpha": alpha, "epsilon": epsilon}, inputs,
             {0: value.reshape(1)} | sides, before, accumulate)

    images = {"l1": (0, F.l1_loss), "mse": (1, F.mse_loss),
              "charbonnier": (2, lambda p, t: torch.sqrt((p - t) ** 2 + epsilon ** 2).mean())}
    for name, (number, function) in images.items():
        for accumulate in (False, True):
            add(f"{name} of two sides", {"loss": number}, leaf(2, 3, 4, 3), leaf(2, 3, 4, 3), function, accumulate)
    for temperature in (1, 3):
        def kl(p, t):
            return temperature ** 2 * F.kl_div(F.log_softmax(p / temperature, 1), F.log_softmax(t / temperature, 1),
                                               reduction="batchmean", log_target=True)
        add(f"kl of two sides, T {temperature}", {"loss": 3, "temperature": temperature}, leaf(5, 7), leaf(5, 7), kl)
    for s in (0, smoothing):
        add(f"cross entropy of two sides, smoothing {s:g}", {"loss": 4, "smoothing": s}, leaf(5, 6),
            torch.randn(5, 6).softmax(1).requires_grad_(), lambda p, t: F.cross_entropy(p, t, label_smoothing=s))
    for scale in (1, 300):
        for name, target in (("labels", torch.randint(0, 2, (3, 2, 2, 3)).double()), ("probabilities", torch.rand(3, 2, 2, 3))):
            prediction = torch.randn(3, 2, 2, 3) * scale
            prediction[0, 0, 0, 0] = 0
            add(f"bce with {name}, logits of {scale}", {"loss": 5}, prediction.requires_grad_(), target.requires_grad_(),
                F.binary_cross_entropy_with_logits, scale == 1)
    labels = torch.randint(0, 2, (9, 2)).double() * 2 - 1
    add("hinge", {"loss": 6}, leaf(9, 2), labels.requires_grad_(), lambda p, t: torch.relu(1 - t * p).mean())
    for n, c, h, w in ((2, 3, 4, 5), (1, 2, 1, 6), (3, 1, 5, 1), (2, 2, 1, 1), (1, 17, 2, 2)):
        def variation(p, _):  # basicsr.losses.WeightedTVLoss, but that a mean of nothing is 0
            pairs = [(p[:, :, :-1], p[:, :, 1:]), (p[:, :, :, :-1], p[:, :, :, 1:])]
            return sum((F.l1_loss(a, b) for a, b in pairs if a.numel()), (p * 0).sum())
        picture = torch.randint(-2, 3, (n, c, h, w)).double() / 4  # neighbours that are alike too
        add(f"total variation of {h}x{w}", {"loss": 7}, picture.requires_grad_(), None, variation, h == 4)
    x = leaf(2, 3, 4, 5)
    y = x.mean((0, 2, 3), keepdim=True).expand_as(x)
    dy, old = torch.randn_like(y), torch.randn_like(y)
    y.backward(dy)
    case("batch", "mean", {}, {0: x}, {0: y})
    case("gradient", "mean", {}, {0: dy}, {0: x.grad + old}, {0: old}, True)


def turns():
    """Numbers that need no generator, so that cases before and after keep theirs."""
    for n, h, w, c in ((16, 3, 3, 2), (16, 2, 4, 1)):
        x = torch.arange(n * c * h * w).reshape(n, c, h, w) / 1024
        y = x.clone()
        for turn in range(n):
            picture = x[turn]
            if turn & 4 and h == w:
                picture = picture.transpose(1, 2)
            if turn & 1:
                picture = picture.flip(2)
            if turn & 2:
                picture = picture.flip(1)
            y[turn] = 1 - picture if turn & 8 else picture
        case(f"{h}x{w}", "turn", {}, {0: x, 1: torch.arange(n, dtype=torch.int32)}, {0: y})


def mixtures():
    for temperature in (1, 2.5):
        for scale, share in ((1, 0.3), (1, 0.0), (1, 1.0), (300, 0.75)):
            x, y = torch.randn(4, 7) * scale, torch.randn(4, 7) * scale
            s = f32(share)
            mixed = temperature * torch.logaddexp(np.log(s) + F.log_softmax(x / temperature, 1) if s > 0 else torch.full_like(x, -np.inf),
                                                  np.log1p(-s) + F.log_softmax(y / temperature, 1) if s < 1 else torch.full_like(x, -np.inf))
            case(f"T {temperature}, logits of {scale}, share {share}", "mix", {"temperature": temperature},
                 {0: x, 1: torch.tensor([s])}, {0: mixed}, {0: y})


def averages():
    """Moving averages that the optimiser's op writes; numbers that need no generator."""
    rate, beta1, beta2, epsilon, decay = map(f32, (0.05, 0.9, 0.999, 1e-8, 0.97))
    follow = torch.optim.swa_utils.get_ema_avg_fn(decay)
    makers = {"sgd": lambda p: torch.optim.SGD([p], rate), "adam": lambda p: torch.optim.Adam([p], rate, (beta1, beta2), epsilon),
              "adamw": lambda p: torch.optim.AdamW([p], rate, (beta1, beta2), epsilon, 0)}
    for number, (name, make) in enumerate(makers.items()):
        for state in (None, torch.arange(5.0) / 4):
            param, grad, old = (torch.arange(11.0) / 8 - 0.5).requires_grad_(), 1 - torch.arange(11.0) / 4, torch.arange(11.0) ** 2
            before, param.grad, optimiser = param.detach().clone(), grad.clone(), make(param)
            optimiser.step()
            moments = {k: optimiser.state[param].get(moment) for k, moment in ((1, "exp_avg"), (2, "exp_avg_sq"))}
            case(f"{name}, average" + (" and statistics" if state is not None else ""), "optimiser",
                 {"optimiser": number, "beta1": beta1, "beta2": beta2, "epsilon": epsilon},
                 {0: grad, 1: torch.tensor([rate, 1 - beta1, 1 - beta2, decay]), 3: state},
                 {0: param, **moments, 3: follow(old, param.detach(), 0), 4: state},
                 {0: before, **{k: torch.zeros(11) for k, m in moments.items() if m is not None}, 3: old})


def spectral_norms():
    """By torch.nn.utils.spectral_norm in training mode; v in the order of our weights, I last."""
    for o, i, kh, kw in ((5, 3, 2, 3), (2, 7, 1, 1), (1, 1, 1, 1)):
        conv = torch.nn.utils.spectral_norm(torch.nn.Conv2d(i, o, (kh, kw), bias=False))
        w, u = conv.weight_orig, conv.weight_u.clone()
        conv(torch.zeros(1, i, kh, kw))
        y, dy, old = conv.weight, torch.randn_like(w), torch.randn_like(w)
        known = {"u": conv.weight_u, "v": conv.weight_v.reshape(1, i, kh, kw)}
        sigma = (w / y).mean().reshape(1)
        case(f"{o}x{i}x{kh}x{kw}", "spectral_norm", {}, {0: w, 1: u}, {0: y, 1: sigma, 2: known["u"], 3: known["v"]})
        dw, = torch.autograd.grad(y, w, dy)
        for accumulate in (False, True):
            case(f"{o}x{i}x{kh}x{kw}", "spectral_norm_backward", {}, {0: dy, 1: y, 2: sigma, 3: known["u"], 4: known["v"]},
                 {0: dw + old if accumulate else dw}, {0: old} if accumulate else None, accumulate)


def text(value):
    data = value.encode()
    return struct.pack("<B", len(data)) + data


def encode(name, kind, accumulate, attr, tensors):
    parts = [text(name), text(kind), struct.pack("<BI", accumulate, len(attr))]
    parts += [text(key) + struct.pack("<d", value) for key, value in attr.items()]
    parts.append(struct.pack("<I", len(tensors)))
    for role, index, array in tensors:
        integers = array.dtype == np.int32
        parts.append(struct.pack("<BBB4I", role, index, integers, *array.shape))
        parts.append(np.ascontiguousarray(array, "<i4" if integers else "<f8").tobytes())
    return b"".join(parts)


if __name__ == "__main__":
    for family in (convolutions, linears, norms, activations, resizes, pools, losses, optimisers, elementwise,
                   target_gradients, frozen_norms, turns, mixtures, averages, spectral_norms):
        family()
    data = b"CODG" + struct.pack("<II", 1, len(cases)) + b"".join(encode(*c) for c in cases)
    path = pathlib.Path(__file__).with_name("golden.bin")
    path.write_bytes(data)
    print(f"{path}: {len(cases)} cases, {len(data)} bytes, PyTorch {torch.__version__}")
