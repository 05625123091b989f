"""PyTorch's side of gan_vs_pytorch: a step of SRGAN as a good user writes it, on our weights and our batch.

gan_pytorch.py FOLDER VARIANT THREADS VGG: FOLDER holds model, discriminator and batch as `codistill bench step --recipe srgan --export`
writes them; VARIANT is {f32,bf16}-{eager,compile}; VGG is the file of the perceptual network, or `none`: then pixels are compared. Runs a
step at once and then one for each line read; each is answered by {"ms", "losses"}.
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))
from gan_networks import VGG, Discriminator  # noqa: E402
from networks import SRResNet  # noqa: E402
from step_pytorch import read_safetensors  # noqa: E402

VGG22_LAYERS = 9  # up to the activation behind conv2_2


def load(net, path):
    weights, metadata = read_safetensors(path)
    net.load_state_dict(weights, strict=False)
    missing = [name for name, _ in net.named_parameters() if name not in weights]
    assert not missing, f"{path} lacks {missing}"
    return net.to(memory_format=torch.channels_last), metadata


def perceptual(path):
    """Its first layer, which makes BGR from 0 to 255 less the mean of RGB from 0 to 1, is no part of the file."""
    net = VGG(64, VGG22_LAYERS, caffe=True)
    weights, _ = read_safetensors(path)
    net.features.load_state_dict({name.removeprefix("features."): value for name, value in weights.items()
                                  if int(name.split(".")[1]) < VGG22_LAYERS})
    return net.to(memory_format=torch.channels_last).requires_grad_(False)


def bce(logits, label):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def make_step(networks, content, batch, bf16):
    g, d = networks
    optimisers = [torch.optim.Adam(net.parameters(), 1e-4, fused=True) for net in networks]
    # Our pictures are NHWC: seen as NCHW they are channels-last, without a copy.
    low, high = batch["input"].permute(0, 3, 1, 2), batch["target"].permute(0, 3, 1, 2)

    def step():
        d.requires_grad_(False)
        optimisers[0].zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            fake = g(low)
            losses = {"content": content(fake, high), "adversarial": bce(d(fake).float(), 1)}
            total = losses["content"] + 1e-3 * losses["adversarial"]
        total.backward()
        optimisers[0].step()
        d.requires_grad_(True)
        optimisers[1].zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            losses["d_real"], losses["d_fake"] = bce(d(high).float(), 1), bce(d(fake.detach()).float(), 0)
            total = losses["d_real"] + losses["d_fake"]
        total.backward()
        optimisers[1].step()
        return losses

    return step


def main(folder, variant, threads, vgg_file):
    torch.set_num_threads(int(threads))
    precision, mode = variant.split("-")
    batch, _ = read_safetensors(f"{folder}/batch.safetensors")
    _, metadata = read_safetensors(f"{folder}/model.safetensors")
    options = json.loads(metadata["codistill.options"])
    g, _ = load(SRResNet(int(options["channels"]), int(options["blocks"])), f"{folder}/model.safetensors")
    weights, _ = read_safetensors(f"{folder}/discriminator.safetensors")
    size = batch["target"].shape[1:3]
    d, _ = load(Discriminator(*size, len(weights["features.0.bias"]), len(weights["classifier.0.bias"])), f"{folder}/discriminator.safetensors")
    networks = [g.train(), d.train()]
    if mode == "compile":
        networks = [torch.compile(net) for net in networks]
    content = F.l1_loss
    if vgg_file != "none":
        vgg = perceptual(vgg_file)
        vgg = torch.compile(vgg) if mode == "compile" else vgg

        def content(fake, high):
            with torch.no_grad():
                wanted = vgg(high)
            return F.mse_loss(vgg(fake).float(), wanted.float())
    step = make_step(networks, content, batch, precision == "bf16")
    while True:
        start = time.perf_counter()
        losses = step()
        ms = 1e3 * (time.perf_counter() - start)
        print(json.dumps({"ms": ms, "losses": {name: loss.item() for name, loss in losses.items()}, "version": torch.__version__}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
