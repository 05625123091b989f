"""Writes the files of torch.save() that test_torch_file.c, tests/tools/test_import.py and the fuzzer read. Needs PyTorch."""
import collections
import pathlib

import torch

HERE = pathlib.Path(__file__).parent


def save(name, what, **how):
    torch.save(what, HERE / name, **how)


def count(*shape, dtype=torch.float32, first=0):
    """A tensor of first, first + 1, …"""
    size = torch.Size(shape).numel()
    return torch.arange(first, first + size).reshape(shape).to(dtype)


def mixed():
    """All types, and all ways of lying in a storage."""
    wide = count(4, 6, first=100)
    tensors = collections.OrderedDict(
        plain=count(2, 3), scalar=torch.tensor(7, dtype=torch.int64), none=torch.empty(0, 3), rows=wide[1:3], columns=wide[:, 2:4],
        turned=count(2, 3).t(), last=count(1, 2, 2, 3).to(memory_format=torch.channels_last), spread=torch.tensor([5.0]).expand(1, 1),
        parameter=torch.nn.Parameter(count(3, first=-1)), tied=wide)
    types = dict(f64=torch.float64, f16=torch.float16, bf16=torch.bfloat16, i32=torch.int32, i16=torch.int16, i8=torch.int8, u8=torch.uint8)
    for name, dtype in types.items():
        tensors[name] = count(3, dtype=dtype)
    tensors["bool"] = torch.tensor([True, False, True])
    return tensors


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 1)
        self.norm = torch.nn.BatchNorm1d(1)


class Harmful:
    """What a hostile file does when Python reads it."""

    def __reduce__(self):
        import os
        return os.system, ("touch /tmp/harmed",)


class RRDB:
    """A generator of ESRGAN with one block, by the names of each of its three releases (num_feat 4, num_block 1, num_grow_ch 2)."""

    FEATURES, GROWTH = 4, 2
    TAIL = {"basicsr": ("conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last"),
            "esrgan": ("trunk_conv", "upconv1", "upconv2", "HRconv", "conv_last"),
            "first": ("model.1.sub.1", "model.3", "model.6", "model.8", "model.10")}
    DENSE = {"basicsr": "body.0.rdb{}.conv{}", "esrgan": "RRDB_trunk.0.RDB{}.conv{}", "first": "model.1.sub.0.RDB{}.conv{}.0"}

    @classmethod
    def tensors(cls, naming):
        generator = torch.Generator().manual_seed(1)
        result = collections.OrderedDict()

        def add(name, inputs, outputs):
            result[f"{name}.weight"] = torch.randn(outputs, inputs, 3, 3, generator=generator) / (9 * inputs) ** 0.5
            result[f"{name}.bias"] = torch.randn(outputs, generator=generator) * 0.1

        add("model.0" if naming == "first" else "conv_first", 3, cls.FEATURES)
        for dense in range(1, 4):
            for layer in range(1, 6):
                inputs = cls.FEATURES + (layer - 1) * cls.GROWTH
                add(cls.DENSE[naming].format(dense, layer), inputs, cls.FEATURES if layer == 5 else cls.GROWTH)
        for name in cls.TAIL[naming]:
            add(name, cls.FEATURES, 3 if name in ("conv_last", "model.10") else cls.FEATURES)
        return result


def edsr():
    """BasicSR's EDSR with num_feat 4, num_block 2 and upscale 3, as it saves itself."""
    layers = {"conv_first": (3, 4), **{f"body.{i}.conv{k}": (4, 4) for i in range(2) for k in (1, 2)}, "conv_after_body": (4, 4),
              "upsample.0": (4, 36), "conv_last": (4, 3)}
    modules = torch.nn.ModuleDict({name.replace(".", "/"): torch.nn.Conv2d(*sizes, 3) for name, sizes in layers.items()})
    return {"params": collections.OrderedDict((name.replace("/", "."), tensor) for name, tensor in modules.state_dict().items())}


def unet_discriminator():
    """Real-ESRGAN's discriminator by the names of BasicSR's UNetDiscriminatorSN (num_feat 2)."""
    widths = {0: (3, 2, 3), 1: (2, 4, 4), 2: (4, 8, 4), 3: (8, 16, 4), 4: (16, 8, 3), 5: (8, 4, 3), 6: (4, 2, 3), 7: (2, 2, 3), 8: (2, 2, 3), 9: (2, 1, 3)}
    network = torch.nn.Module()
    for index, (inputs, outputs, kernel) in widths.items():
        plain = index in (0, 9)
        layer = torch.nn.Conv2d(inputs, outputs, kernel, 1, 1, bias=plain)
        setattr(network, f"conv{index}", layer if plain else torch.nn.utils.spectral_norm(layer))
    return network.state_dict()


def vgg_discriminator():
    """ESRGAN's discriminator for 32 pixels a side by the names of BasicSR's VGGStyleDiscriminator (num_feat 2)."""
    network, before = torch.nn.Module(), 3
    for block, channels in enumerate((2, 4, 8)):
        for part, inputs, kernel in ((0, before, 3), (1, channels, 4)):
            layer = torch.nn.Conv2d(inputs, channels, kernel, 1 + part, 1, bias=(block, part) == (0, 0))
            setattr(network, f"conv{block}_{part}", layer)
            if (block, part) != (0, 0):
                setattr(network, f"bn{block}_{part}", torch.nn.BatchNorm2d(channels))
        before = channels
    network.linear1, network.linear2 = torch.nn.Linear(8 * 4 * 4, 5), torch.nn.Linear(5, 1)
    return network.state_dict()


torch.manual_seed(1)
save("mixed.pth", mixed())
save("mixed-old.pth", mixed(), _use_new_zipfile_serialization=False)
save("mixed-protocol4.pth", mixed(), pickle_protocol=4)
network = Network()
optimiser = torch.optim.Adam(network.parameters())
save("checkpoint.pth", {"epoch": 3, "rate": 1e-3, "seed": 1 << 80, "state_dict": network.state_dict(), "params_ema": network.state_dict(),
                        "optimizer": optimiser.state_dict(), "betas": (0.9, 0.999), "device": torch.device("cpu"),
                        "sizes": [torch.Size((2, 1))], "done": {"a", "b"}})
save("module.pth", network)
save("harmful.pth", {"params": count(2), "x": Harmful()})
save("harmful-old.pth", {"params": count(2), "x": Harmful()}, _use_new_zipfile_serialization=False)
save("no-tensors.pth", {"epoch": 3})
save("tensor.pth", count(2))
save("rrdb-basicsr.pth", {"params": RRDB.tensors("basicsr"), "params_ema": RRDB.tensors("basicsr")})
save("rrdb-esrgan.pth", {"module." + name: tensor for name, tensor in RRDB.tensors("esrgan").items()})
save("rrdb-first.pth", RRDB.tensors("first"), _use_new_zipfile_serialization=False)
save("edsr.pth", edsr())
torch.manual_seed(2)
save("net_d-unet.pth", {"params": unet_discriminator()})
save("net_d-vgg.pth", {"params": vgg_discriminator()})
