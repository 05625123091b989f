#!/usr/bin/env python3
"""Bad inputs to `codistill`: each gets its exit code and a message that says what is wrong, and leaves nothing behind.

usage: test_bad_inputs.py CODISTILL [--write FILE]

The table of what was tried and printed is docs/bad-inputs.md; the test fails where it differs. --write makes it anew.
"""

import contextlib
import difflib
import gzip
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

from test_odd_files import tiff
from torch_files import Tensor, compact, pickled, plain_zip, torch_file
from train_support import CONFIG
from train_support import png as noise


def png(width, height, *chunks):
    """A gray-gradient RGB picture."""
    rows = b"".join(b"\0" + bytes((x + y) % 256 for x in range(width) for _ in range(3)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*one) for one in chunks) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def jpeg(scans):
    """A gray picture of 8x8 pixels in so many progressive scans: the first has the mean, each other one a bit of a coefficient."""
    def segment(marker, data):
        return struct.pack(">BBH", 255, marker, len(data) + 2) + data

    def scan(number):
        coefficient, bit = number // 14 + 1, 13 - number % 14
        return segment(0xDA, bytes([1, 1, 0, coefficient, coefficient, bit if bit == 13 else (bit + 1) << 4 | bit])) + b"\x7f"

    table = bytes([1]) + bytes(15) + b"\0"
    return (b"\xff\xd8" + segment(0xDB, bytes([0]) + bytes([1] * 64)) + segment(0xC2, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])) +
            segment(0xC4, b"\0" + table) + segment(0xC4, b"\x10" + table) + segment(0xDA, bytes([1, 1, 0, 0, 0, 0])) + b"\x7f" +
            b"".join(map(scan, range(scans - 1))) + b"\xff\xd9")


def make_files(program, folder):
    def write(name, data):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())

    base = CONFIG
    write("ok.yaml", base)
    write("unknown_key.yaml", base.replace("burn_in: 5", "burnin: 5"))
    write("unknown_section.yaml", base + "trian: {steps: 3}\n")
    write("range.yaml", base.replace("steps: 60", "steps: 0"))
    write("type.yaml", base.replace("steps: 60", "steps: many"))
    write("choice.yaml", base.replace("precision: f32", "precision: f23"))
    peers = base.replace("period: 10", "period: 10, peers: random").replace("single", "codistill")
    write("peers.yaml", peers)
    write("draw.yaml", peers.replace("random", "random(3)").replace("threads: 1, t", "threads: 1, groups: 2, t"))
    write("twice.yaml", base + "name: again\n")
    write("syntax.yaml", base + "data: {patch: [\n")
    write("many.yaml", base.replace("steps: 60", "steps: 0").replace("ramp: 5", "rampp: 5"))
    write("mlp.yaml", "model: {name: mlp}\ndata: {kind: pictures, path: photos/good}\n")
    write("classes.yaml", base.replace("srresnet, blocks: 1, channels: 8, norm: none, head_kernel: 3, tail_kernel: 3, skip: nearest",
                                       "mlp, hidden: [4]").replace("synthetic_count: 4", "synthetic_count: 40"))
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 20) + bytes(i % 10 for i in range(20))
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 20, 4, 4) + bytes(i % 256 for i in range(320))
    for name, image_bytes, label_bytes in (
            ("short", images[:-9], labels), ("counts", images, labels[:4] + struct.pack(">I", 19) + labels[8:-1]),
            ("kind", labels, labels), ("gzip", gzip.compress(images, mtime=0)[:-30] + b"?" * 30, labels)):
        for part in ("train", "t10k"):
            packed = ".gz" if name == "gzip" and part == "train" else ""
            write(f"{name}/{part}-images-idx3-ubyte{packed}", images if name == "gzip" and part == "t10k" else image_bytes)
            write(f"{name}/{part}-labels-idx1-ubyte", label_bytes)
    write("flowers.csv", "length,width,species\n1,2,iris\n3,wide,rose\n")
    for place in ("train/ant", "train/bee", "val/bee"):
        write(f"insects/{place}/a.png", png(20, 20))
    write("binary.yaml", bytes(range(256)))
    write("other_model.yaml", base.replace("blocks: 1", "num_block: 1"))
    write("even.yaml", "model: {name: rrdb, scale: 2}\ndata: {kind: synthetic, patch: 15}\n")
    write("model.yaml", base.replace("name: srresnet", "name: srresnett"))
    write("groups.yaml", base.replace("threads: 1, t", "groups: [{rank: 2}], t"))
    write("photos/small/a.png", png(16, 16))
    write("photos/broken/a.png", png(64, 64)[:100])
    write("photos/none/readme.txt", "no picture")
    write("older/compare.json", '{"format": "codistill-compare-0"}')
    write("photos/good/a.png", png(64, 64))
    write("photos/good/b.png", png(64, 48))
    write("truncated.safetensors", struct.pack("<Q", 1000) + b'{"a":')
    write("garbage.safetensors", bytes(255 - i for i in range(256)))
    write("foreign.safetensors", struct.pack("<Q", 64) + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(64) + b"\0" * 4)
    shapes = {"features.0.weight": [64, 3, 3, 3], "features.0.bias": [64]}
    header, data = {}, b""
    for tensor, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(size)
    header = json.dumps(header).encode()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 67040989\n"
    for name in ("lfs.pth", "lfs.safetensors", "lfs.yaml", "lfs.csv", "lfs.png", "lfs.mp4"):
        write(name, pointer)
    write("page.pth", "<!DOCTYPE html><html><body>Sign in</body></html>")
    write("packed.pth", gzip.compress(b"weights", mtime=0))
    write("picture.pth", png(8, 8))
    write("empty.safetensors", "")
    write("network.onnx", b"\x08\x09\x12\x07pytorch")
    write("plain.zip", plain_zip({"a.txt": b"text"}))
    write("saved.safetensors", torch_file({"params": {"weight": Tensor((1,), bytes(4))}}))
    damaged = bytearray(torch_file({"params": compact()}))
    damaged[damaged.index(struct.pack("<f", 0.03))] ^= 1
    write("damaged.pth", bytes(damaged))
    write("two.pth", torch_file({f"{network}.{name}": tensor for network in ("netG", "netD") for name, tensor in compact().items()}))
    weights = {name: Tensor(tensor.shape, tensor.data) for name, tensor in compact().items()}
    big = Tensor((1 << 19,), bytes(1 << 21))
    write("script.pt", plain_zip({"m/data.pkl": b"\x80\x02c__torch__\nNet\n)\x81.", "m/constants.pkl": b"\x80\x02)."}))
    write("module.pth", plain_zip({"m/data.pkl": b"\x80\x02c__main__\nNetwork\n)\x81."}))
    write("packed-entries.pth", plain_zip({"m/data.pkl": b"\x80\x02}."}, zipfile.ZIP_DEFLATED))
    write("states.pth", torch_file({"optimizer": weights}))
    write("long.pth", plain_zip({"m/data.pkl": b"\x80\x02" + b"N0" * (1 << 20) + b"}."}))
    write("shared.pth", torch_file({str(i): big for i in range(10)}))
    write("named.pth", plain_zip({"m/data.pkl": b"\x80\x02}(" + 2 * (pickled("a", []) + pickled(Tensor((1,), bytes(4)), [])) + b"u.", "m/data/0": bytes(4)}))
    write("nan.pth", torch_file({**weights, "body.1.weight": Tensor((2,), struct.pack("<2f", 1, math.nan))}))
    write("nothing.safetensors", struct.pack("<Q", 2) + b"{}")
    write("hdr.png", png(8, 8, (b"cICP", bytes([9, 16, 0, 1]))))
    write("moving.png", png(8, 8, (b"acTL", struct.pack(">II", 2, 0))))
    write("scans.jpg", jpeg(101))
    gray = [[((x + y) % 256,) for x in range(21)] for y in range(18)]
    write("signed.tif", tiff(gray, 16, extra={339: [2]}))
    write("separated.tif", tiff([[p * 4 for p in row] for row in gray], 16, extra={262: [5], 338: [0]}))
    write("flowers-semicolons.csv", "length;width;species\n1;2;iris\n")
    write("flowers-lacking.csv", "length,species\n1,iris\n2,\n3,rose\n")
    write("flowers-spaces.csv", "length,species\n1,iris\n2, iris\n3,rose\n")
    write("flowers-unclear.csv", "1,2,iris\n2,3,rose\n3,3,rose\n")
    write("flowers.xlsx", plain_zip({"[Content_Types].xml": b"<"}))
    write("flowers-utf16.csv", "length,species\n1,iris\n".encode("utf-16"))
    os.mkfifo(os.path.join(folder, "pipe.csv"))
    for name in ("a", "b"):
        write(f"pairs/high/{name}.png", png(64, 64))
        write(f"pairs/low/{name}.png", png(17, 16))
        write(f"unlike/high/{name}.png", png(65, 65))
        write(f"unlike/low/{name}.png", noise(16, 16))
        write(f"seen/{name}.png", png(64, 64 if name == "a" else 48))
    write("vgg.safetensors", struct.pack("<Q", len(header)) + header + data)
    subprocess.run([program, "train", "ok.yaml", "train.steps=10", "eval.every=0"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for command in (SEEN, COMPARED):
        subprocess.run([program, *command, "train.steps=2"], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    write("seen/a.png", png(64, 60))
    runs = os.path.join(folder, "runs")
    for name in ("damaged", "empty", "linked"):
        shutil.copytree(os.path.join(runs, "t"), os.path.join(runs, name))
    for step in os.listdir(os.path.join(runs, "damaged", "checkpoints")):
        write(f"runs/damaged/checkpoints/{step}/group-0.safetensors" if step.startswith("step-") else "unused", b"damaged")
    write("runs/empty/config.yaml", "")
    os.remove(os.path.join(runs, "linked", "metrics.0.jsonl"))
    os.symlink("/dev/null", os.path.join(runs, "linked", "metrics.0.jsonl"))
    os.chmod(runs, 0o755)


MODEL = "runs/t/final.safetensors"

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "bad-inputs.md")
IMAGES = ["train", "ok.yaml", "name=i", "data.kind=pictures"]
FILES = ["train", "ok.yaml", "train.strategy=codistill", "exchange.transport=file"]
CLASSES = ["train", "classes.yaml", "name=i"]
TWO = ["train", "ok.yaml", "name=i", "train.strategy=codistill", "cluster.groups=2"]
SEEN = ["train", "ok.yaml", "name=seen", "data.kind=pictures", "data.path=seen", "eval.every=0"]
COMPARED = ["compare", *SEEN[1:], "compare.arms=[single]", "compare.seeds=[1]"]
GAN = ["train", "ok.yaml", "name=i", "train.recipe=srgan"]
ESRGAN = ["train", "ok.yaml", "name=i", "train.recipe=esrgan"]
REAL_ESRGAN = ["train", "ok.yaml", "name=i", "train.recipe=real_esrgan"]
FULL_DISK = "full disk"

# what is wrong: [(arguments, exit code, part of the message)]; a command that is started otherwise is given whole
CASES = {
    "configuration": [
        (["train", "missing.yaml"], 1, "missing.yaml"),
        (["train", "unknown_key.yaml"], 2, "did you mean 'burn_in'?"),
        (["train", "unknown_section.yaml"], 2, "did you mean 'train'?"),
        (["train", "range.yaml"], 2, "'0' is not a whole number"),
        (["train", "type.yaml"], 2, "'many' is not a whole number"),
        (["train", "choice.yaml"], 2, "f32"),
        (["train", "peers.yaml"], 2, "one of: all, ring, random(k)"),
        (["train", "draw.yaml"], 2, "random(1) at most"),
        (["train", "ok.yaml", "train.strategy=codistill", "exchange.key_file=key"], 2, "set exchange.transport=file"),
        (["train", "ok.yaml", "train.strategy=codistill", "exchange.merge=average", "exchange.merge_against=exact"], 2,
         "set exchange.merge=delay_corrected"),
        (["train", "twice.yaml"], 2, "name"),
        (["train", "syntax.yaml"], 2, "syntax.yaml:"),
        (["train", "many.yaml"], 2, "'0' is not a whole number from 1 to 1e+12\nmany.yaml:6:23: unknown key 'rampp'"),
        (["train", "binary.yaml"], 2, "binary.yaml"),
        (["train", "other_model.yaml"], 2, "num_block"),
        (["train", "model.yaml"], 2, "did you mean 'srresnet'?"),
        (["train", "ok.yaml", "name=i", "model={name: edsr, rgb_mean: [0.5]}"], 2, "rgb_mean: wants three numbers"),
        (["train", "groups.yaml"], 2, "unknown key 'rank' in a group"),
        (["train", "ok.yaml", "train.stepz=3"], 2, "did you mean 'steps'?"),
        (["train", "ok.yaml", "train.strategy=alreduce"], 2, "did you mean 'allreduce'?"),
        (["train", "ok.yaml", "train.recipe=supervise"], 2, "did you mean 'supervised'?"),
        (["train", "ok.yaml", "train.backend=gpu"], 2, "no backend 'gpu'"),
        (["train", "ok.yaml", "cluster.device=gpu"], 2, "cluster.device: 'gpu' is not one of: auto, cpu, cuda"),
        (["train", "ok.yaml", "train.strategy=codistill", "cluster.groups=[{ranks: 1, device: gpu}, {}]"], 2, "device: 'gpu' is not one of: auto, cpu, cuda"),
        (["train", "ok.yaml", "name=i", "cluster.device=cuda"], 1, "cluster.device: cuda: there is no NVIDIA driver on this machine; "),
        (["train", "ok.yaml", "train.strategy=central_storage", "train.allreduce_codec=int8"], 2, "int8 is for: single, allreduce, "),
        (["train", "ok.yaml", "train.max_time=soon"], 2, "'soon' is no time"),
        (["train", "ok.yaml", "checkpoint.write_timeout_s=0"], 2, "is not a number from 0.1 to 1000000"),
        (["train", "ok.yaml", "name=a/b"], 2, "cannot be a folder's name"),
        (["train", "ok.yaml", "model.init=start"], 2, "`shared`, `own`"),
        (["train", "ok.yaml", "train.warmup=100"], 2, "leave nothing"),
        (["plan", "mlp.yaml"], 2, "model 'mlp' is for classification"),
        (["train", "ok.yaml", "name=n", "data.kind=pictuers"], 2, "did you mean 'pictures'?"),
        (["train", "ok.yaml", "name=n", "train.loss=cross_entropy"], 2, "is for classification"),
        (["train", "ok.yaml", "name=n", "train.strategy=codistill", "distill.loss=kl"], 2, "compares classes"),
        (["train", "ok.yaml", "name=n", "train.strategy=codistill", "distill.average=probabilities"], 2, "with loss auto: set auto or outputs"),
        (["train", "ok.yaml", "name=n", "model.init=absent.safetensors"], 2, "model.init: there is no 'absent.safetensors'"),
        (["train", "even.yaml", "name=n"], 2, "data.patch: model 'rrdb' takes sides that are multiples of 2, not 15"),
        (["train", "ok.yaml", "name=n", "data.kind=pictures", "data.path=photos/good", "data.weights=[1, 2]"], 2, "data.weights: 2 given"),
        (["train", "ok.yaml", "data.scales=[1, 2]"], 2, "'2' is not a list of numbers from 0.05 to 1"),
        (["train", "ok.yaml", "name=i", "data.scales=[1, 0.1]"], 2, "brought down to 0.1 of their size, holds a crop of 32x32 pixels"),
        (["train", "ok.yaml", "degradation.blur_kernel_size=8"], 2, "degradation.blur_kernel_size: 8 is even"),
        (["train", "ok.yaml", "degradation.kernel_list=[iso, anso]"], 2, "'anso' is no blur kernel; did you mean 'aniso'?"),
        (["train", "ok.yaml", "degradation.jpeg_range=[95, 30]"], 2, "degradation.jpeg_range: 95, the least, is above 30, the most"),
        (["train", "ok.yaml", "degradation.betag_range=[2, 4]"], 2, "degradation.betag_range: must contain 1, but goes from 2 to 4"),
        (["train", "ok.yaml", "eval.degraded=true"], 2, "where data.degradation is real_esrgan, and it is bicubic"),
        (["train", "ok.yaml", "data.val_sets=[photos/nothing]"], 2, "data.val_sets: there is no 'photos/nothing'"),
        (["train", "ok.yaml", "data.val_sets=[photos/none]"], 2, "data.val_sets: no pictures in 'photos/none'"),
        (["train", "ok.yaml", "data.val_sets=[mine=photos/good]", "eval.best_set=yours"], 2, "'yours' is no set of data.val_sets; these are: mine"),
        (["train", "ok.yaml", "eval.patience=-1"], 2, "eval.patience: '-1' is not a whole number"),
        (["train", "ok.yaml", "eval.patience=3", "eval.every=0"], 2, "eval.patience: counts evaluations during training"),
        (["compare", "ok.yaml", "eval.patience=3"], 2, "eval.patience: runs that are compared have equal budgets"),
        ([*IMAGES, "data.path=photos/good", "data.val_path=photos/good", "data.val_count=0", "data.val_low_path=photos/good", "data.degradation=real_esrgan", "eval.degraded=true"], 2,
         "eval.degraded: makes the low-resolution pictures that data.val_low_path gives"),
        (["train", "classes.yaml", "data.kind=iris", "data.path=flowers.csv", "data.degradation=real_esrgan"], 2, "real_esrgan is for kind pictures, not iris"),
        (["train", "ok.yaml", "data.kind=pictures", "data.path=photos/good", "data.low_path=photos/good", "data.degradation=real_esrgan"], 2,
         "makes the low-resolution pictures that low_path gives"),
    ],
    "adversarial training": [
        ([*GAN, "gan.content=vgg22"], 2, "gan.content: 'vgg22' compares features of VGG-19: name its weights in gan.perceptual_file"),
        ([*GAN, "gan.content=vgg22", "gan.perceptual_file=absent.safetensors"], 2, "gan.perceptual_file: there is no 'absent.safetensors'"),
        ([*GAN, "gan.content=vgg22", "gan.perceptual_file=data/vgg19/vgg19.safetensors"], 2, "tools/get-data.sh vgg19 brings it"),
        ([*GAN, "gan.content=vgg22", "gan.perceptual_file=foreign.safetensors"], 2, "holds no layer of VGG-19"),
        ([*GAN, "gan.content=squeeze3"], 2, "'squeeze3' compares features of SqueezeNet 1.1: name its weights in gan.perceptual_file"),
        ([*GAN, "gan.content=squeeze3", "gan.perceptual_file=vgg.safetensors"], 2, "the file holds SqueezeNet 1.1 up to layer 1, but layer 3 is compared"),
        ([*GAN, "gan.content=[vgg11, squeeze3]", "gan.perceptual_file=vgg.safetensors"], 2, "are of two networks, but gan.perceptual_file holds one"),
        ([*GAN, "gan.content=squeeze9", "data.patch=6"], 2, "but 'squeeze9' of gan.content needs 25; a patch of 7 would do"),
        (["train", "ok.yaml", "train.strategy=codistill", "distill.loss=features"], 2, "recipe 'supervised' has no frozen network"),
        ([*GAN, "gan.content=pixel", "train.strategy=codistill", "distill.loss=features"], 2,
         "the content loss of recipe 'srgan' compares pixels"),
        ([*GAN, "gan.content=vgg54", "gan.perceptual_file=vgg.safetensors"], 2, "from conv1_1 to conv1_1, but conv5_4 is compared"),
        ([*GAN, "gan.content=vgg99"], 2, "gan.content: 'vgg99' is not one of"),
        ([*GAN, "gan.content=[vgg22, 2*vgg22]"], 2, "gan.content: 'vgg22' is listed twice"),
        ([*GAN, "gan.content=[vgg22*2]"], 2, "gan.content: 'vgg22*2' is not one of"),
        ([*GAN, "gan.discriminator_init=absent.safetensors"], 2, "gan.discriminator_init: there is no 'absent.safetensors'"),
        ([*GAN, "gan.discriminator_init=vgg.safetensors"], 1, "the tensors do not fit the network 'discriminator'"),
        ([*ESRGAN, "gan.perceptual_file=vgg.safetensors"], 2, "from conv1_1 to conv1_1, but conv5_4 is compared"),
        ([*ESRGAN, "gan.content=pixel", "data.patch=12"], 2, "is 48 pixels a side, but the discriminator of recipe 'esrgan' judges 16, 32"),
        ([*ESRGAN, "gan.content=pixel", "data.patch=16", "model.scale=2", "model.init=runs/t/final.safetensors"], 1, "; the file's model has scale 4, not 2"),
        ([*REAL_ESRGAN, "gan.perceptual_file=vgg.safetensors"], 2, "from conv1_1 to conv1_1, but conv5_4 is compared"),
        ([*REAL_ESRGAN, "gan.content=pixel", "data.patch=10", "model.scale=3"], 2, "30 pixels a side, but the discriminator of recipe 'real_esrgan'"),
        ([*REAL_ESRGAN, "gan.content=pixel", "gan.hidden=100"], 2, "gan.hidden: the discriminator of recipe 'real_esrgan' has no fully connected"),
        ([*REAL_ESRGAN, "gan.content=pixel", "gan.discriminator_init=vgg.safetensors"], 1, "the tensors do not fit the network 'discriminator'"),
        ([*GAN, "gan.pixel_weight=1"], 2, "compares pixels already"),
        ([*GAN, "gan.warm_up=60"], 2, "leave nothing of 60 steps"),
        ([*GAN, "gan.r1=10"], 2, "gan.r1: the R1 penalty is for discriminators without batch normalisation"),
        ([*REAL_ESRGAN, "gan.content=pixel", "gan.r1_every=4"], 2, "gan.r1_every: there is no R1 penalty to compute in one of 4 steps"),
        ([*REAL_ESRGAN, "gan.content=pixel", "data.gt_usm=true"], 2, "data.gt_usm: recipe 'real_esrgan' has an option for each of its losses"),
        ([*CLASSES, "train.recipe=srgan"], 2, "judges pictures; model 'mlp' makes none"),
    ],
    "comparison": [
        (["compare", "ok.yaml", "compare.arms=[singel]"], 2, "did you mean 'single'?"),
        (["compare", "ok.yaml", "compare.arms=[{nam: a}]"], 2, "unknown key 'nam' in an arm; did you mean 'name'?"),
        (["compare", "ok.yaml", "compare.arms=[single, single]"], 2, "two arms 'single'"),
        (["compare", "ok.yaml", "compare.arms=[{name: a, strategy: single, set: [train.stepz=3]}]"], 2, "did you mean 'steps'?"),
        (["compare", "ok.yaml", "compare.arms=[single]", "compare.baseline=singel"], 2, "there is no arm 'singel'; did you mean 'single'?"),
        (["compare", "ok.yaml", "compare.rates=[fast]"], 2, "'fast' is no rate"),
        (["compare", "ok.yaml", "compare.budget=hours"], 2, "one of: steps, samples, time, bytes"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3]"], 2, "a list of two or more candidates"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3, []]"], 2, "an empty candidate"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3, train.steps=9]"], 2, "a candidate cannot set"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3, train.rat=1]"], 2, "did you mean 'rate'?"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3, train.rate=1e-4]", "compare.seeds=[0, 1]"], 2, "0 is one of the seeds"),
        (["compare", "ok.yaml", "compare.tune=[train.rate=1e-3, train.rate=1e-4]", "data.val_count=0", "data.val_fraction=0"], 2,
         "no data are held out to choose by"),
        (["compare", "ok.yaml", "--strategies", "singel"], 2, "did you mean 'single'?"),
        (["compare", "ok.yaml", "--seeds", "one"], 2, "'one' is no seed"),
    ],
    "command line": [
        (["trian"], 2, "did you mean 'train'?"),
        (["--version", "x"], 2, "takes no arguments"),
        (["train"], 2, "configuration file is missing"),
        (["train", "ok.yaml", "--fast"], 2, "no option '--fast'"),
        (["plan", "ok.yaml", "train.steps"], 2, "neither an option nor key=value"),
        (["data", "ok.yaml"], 2, "--show names the folder"),
        (["data", "ok.yaml", "--show", "samples", "--count", "0"], 2, "not a whole number from 1 to 10000"),
        (["data", "ok.yaml", "--show", "flowers.csv"], 1, "flowers.csv"),
        (["data", "classes.yaml", "--show", "samples"], 2, "samples of super-resolution can be shown"),
        (["data", "ok.yaml", "--show", "samples", "data.kind=pictures", "data.path=photos/none"], 2, "no pictures in 'photos/none'"),
        (["report", "absent"], 2, "there is no folder 'absent'"),
        (["report", "photos"], 1, "compare.json"),
        (["report", "older"], 1, 'its format is "codistill-compare-0"'),
        (["eval"], 2, "codistill eval"),
        (["upscale", MODEL, "photos/good/a.png"], 2, "-o"),
        (["upscale", MODEL, "-o", "a.png"], 2, "IN is missing"),
        (["COD_MODELS=photos", "codistill", "upscale", "photos/good/a.png", "-o", "a.png"], 2, "where COD_MODELS says that it is"),
        (["upscale", MODEL, "photos/good/a.png", "-o", "out", "--tile", "1"], 2, "tile"),
        (["upscale", MODEL, "photos/good/a.png", "-o", "out.tif"], 2, "written as .png, .jpg or .webp"),
        (["upscale", MODEL, "photos/good/a.png", "-o", "out", "--format", "gif"], 2, "none of png, jpg and webp"),
        (["upscale", MODEL, "photos/good/a.png", "-o", "a.jpg", "--quality", "101"], 2, "not a whole number from 1 to 100"),
        (["upscale", MODEL, "photos/good/a.png", "-o", "a.png", "--outscale", "20"], 2, "not a number from 0.1 to 16"),
        (["upscale", MODEL, "clip.mp4", "-o", "a.mp4", "--crf", "60"], 2, "not a whole number from 0 to 51"),
        (["upscale", MODEL, "clip.mp4", "-o", "a.png"], 2, "a video is written as a .mp4, .mov, .mkv or .webm file"),
        (["upscale", MODEL, "clip.mp4", "photos/good", "-o", "a.mp4"], 2, "a video is upscaled alone"),
        (["PATH=photos", "codistill", "upscale", MODEL, "clip.mp4", "-o", "a.mp4"], 1, "videos need ffmpeg and ffprobe (Debian: apt-get install ffmpeg)"),
        (["gallery", MODEL, "-o", "a.html"], 2, "--data DIR is missing"),
        (["gallery", MODEL, "--data", "photos/good"], 2, "-o OUT.html is missing"),
        (["gallery", MODEL, "--data", "photos/good", "-o", "a.htm"], 2, "a.htm: the page's name must end with .html"),
        (["gallery", MODEL, "--data", "photos/good", "-o", "a.html", "--side", "10"], 2, "--side: '10' is not a whole number from 64"),
        (["COD_MODELS=photos", "codistill", "gallery", "--data", "photos/good", "-o", "a.html"], 2, "where COD_MODELS says that it is"),
        (["eval", MODEL, "--data", "photos/good", "--device", "gpu"], 2, "--device: 'gpu' is not one of: auto, cpu, cuda"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "psnr,nice"], 2, "unknown metric 'nice'; known are psnr, ssim, niqe, pi and lpips"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "niqe"], 2, "--metrics niqe needs --niqe-model FILE"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "niqe", "--niqe-model", "photos/good/a.png"], 1, "is a PNG picture, not a ZIP archive"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "pi"], 2, "--metrics pi needs --niqe-model FILE"),
        (["eval", MODEL, "--data", "photos/good", "--ma-model", "photos/good/a.png"], 2, "--ma-model is for --metrics pi"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "lpips"], 2, "--metrics lpips needs --lpips-network FILE"),
        (["eval", MODEL, "--data", "photos/good", "--metrics", "lpips", "--lpips-network", MODEL], 1, "holds no layer of SqueezeNet 1.1"),
        (["train", "ok.yaml", "eval.metrics=psnr, nice"], 2, "unknown metric 'nice'; known are psnr, ssim, niqe, pi and lpips"),
        (["train", "ok.yaml", "eval.best=niqe"], 2, "in eval.niqe_model"),
        (["train", "ok.yaml", "eval.best=lpips"], 2, "in eval.lpips_network"),
        (["train", "ok.yaml", "eval.niqe_model=photos/good/a.png"], 2, "is a PNG picture, not a ZIP archive"),
        (["train", "ok.yaml", f"eval.ma_model={MODEL}"], 2, "'linear' is not in it; tools/ma_model.py makes the file"),
        (["train", "ok.yaml", "eval.lpips_network=absent.safetensors"], 2, "absent.safetensors"),
        (["train", "classes.yaml", "eval.best=psnr"], 2, "the best model is chosen by accuracy"),
        (["eval", MODEL, "--data", "photos/good", "--device", "cuda"], 1, "--device: cuda: there is no NVIDIA driver on this machine; "),
        (["export", MODEL, "-o", "x.tflite"], 2, "x.tflite"),
        (["import", "absent.pth", "-o", "x.safetensors"], 1, "absent.pth"),
        (["import", MODEL, "-o", "x.safetensors"], 2, "is a model of codistill already"),
        (["import", "damaged.pth", "-o", "x.safetensors"], 1, "'archive/data/0' in the archive is damaged: its CRC-32 is another"),
        (["import", "two.pth", "-o", "x.safetensors"], 2, "'netD' (compact, 5 tensors), 'netG' (compact, 5 tensors)"),
        (["import", "two.pth", "-o", "x.safetensors", "--prefix", "net"], 2, "no name in it begins with --prefix 'net'"),
        (["import", "photo.pth"], 2, "either -o with the .safetensors file to write, or --list"),
        (["import", "photo.pth", "-o", "x.onnx"], 2, "must end with .safetensors"),
        (["interpolate", MODEL, "-o", "x.safetensors"], 2, "two models are wanted"),
        (["interpolate", MODEL, MODEL, "--alpha", "1.5", "-o", "x.safetensors"], 2, "--alpha: '1.5' is not a number from 0 to 1"),
        (["interpolate", MODEL, MODEL, "--alpha", "0.5", "-o", MODEL], 2, "would replace the model itself"),
        (["interpolate", MODEL, "absent.safetensors", "--alpha", "0.5", "-o", "x.safetensors"], 1, "absent.safetensors"),
        (["bench", "speed"], 2, "no bench 'speed'"),
        (["bench", "step", "--device", "gpu"], 2, "--device: 'gpu' is none of auto, cpu, cuda"),
        (["bench", "step", "--batch", "5x"], 2, "--batch: '5x' is not a whole number"),
        (["bench", "step", "--recipe", "gam"], 2, "there is no recipe 'gam'"),
        (["bench", "niqe", "photos/good/a.png"], 2, "--niqe-model FILE is wanted"),
    ],
    "another kind of file": [
        (["import", "lfs.pth", "-o", "x.safetensors"], 1, "is a Git LFS pointer, not a file of torch.save(): fetch the file itself"),
        (["import", "page.pth", "-o", "x.safetensors"], 1, "is an HTML page, not a file of torch.save()"),
        (["import", "packed.pth", "-o", "x.safetensors"], 1, "is a gzip file, not a file of torch.save(): unpack it"),
        (["import", "plain.zip", "-o", "x.safetensors"], 1, "is a ZIP archive, not a file of torch.save(): unpack it"),
        (["import", "picture.pth", "-o", "x.safetensors"], 1, "is a PNG picture, not a file of torch.save()"),
        (["import", "network.onnx", "-o", "x.safetensors"], 1, "is an ONNX model, not a file of torch.save()"),
        (["upscale", "lfs.safetensors", "photos/good/a.png", "-o", "a.png"], 1, "is a Git LFS pointer, not a safetensors file"),
        (["upscale", "saved.safetensors", "photos/good/a.png", "-o", "a.png"], 1, "no network in it is of an architecture that is known by its tensors; `codistill import saved.safetensors --list`"),
        (["export", "empty.safetensors", "-o", "x.onnx"], 1, "is an empty file, not a safetensors file"),
        (["upscale", MODEL, "lfs.png", "-o", "a.png"], 1, "lfs.png: a Git LFS pointer, not a picture"),
        (["upscale", MODEL, "lfs.mp4", "-o", "a.mp4"], 1, "is a Git LFS pointer, not a video"),
        (["train", "lfs.yaml"], 2, "is a Git LFS pointer, not a configuration"),
        ([*CLASSES, "data.kind=iris", "data.path=lfs.csv"], 1, "is a Git LFS pointer, not a table"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers.xlsx"], 1, "is an Office document, such as xlsx, not a table"),
        ([*CLASSES, "data.kind=iris", "data.path=/dev/zero"], 1, "is no regular file"),
        ([*CLASSES, "data.kind=iris", "data.path=pipe.csv"], 1, "is no regular file"),
        ([*CLASSES, "data.kind=iris", "data.path=photos"], 1, "is a folder; name the table in it, a CSV file"),
        (["train", "ok.yaml", "name=i", "model.init=lfs.safetensors"], 1, "is a Git LFS pointer, not a safetensors file"),
    ],
    "ranks": [
        (["mpirun", "-n", "3", "codistill", "train", "ok.yaml", "train.strategy=codistill", "cluster.groups=2"], 2,
         "2 groups with 2 ranks in all, but the job has 3"),
        (["mpirun", "-n", "2", "codistill", "train", "ok.yaml"], 2, "'single' trains on one rank, but the job has 2"),
        (["OMPI_COMM_WORLD_SIZE=4", "codistill", "train", "ok.yaml"], 1, "promised 4 ranks"),
    ],
    "the launcher of ranks": [
        (["COD_MPIEXEC=true", "codistill", *TWO], 1, "started none of 2 ranks"),
        (["COD_MPIEXEC=false", "codistill", *TWO], 1, "started none of 2 ranks"),
        (["COD_MPIEXEC=absent", "codistill", *TWO], 1, "cannot start"),
    ],
    "groups as jobs": [
        (["train", "ok.yaml", "train.strategy=codistill", "--group", "0"], 2, "set exchange.transport=file"),
        (["train", "ok.yaml", "train.strategy=allreduce", "--group", "0"], 2, "all ranks are one"),
        ([*FILES, "cluster.groups=2", "--group", "2"], 2, "there is no group 2: cluster.groups makes 2"),
        ([*FILES, "cluster.groups=by_node", "--group", "0"], 2, "by_node"),
        ([*FILES, "cluster.groups=2", "train.deterministic=true", "--group", "0"], 2, "never wait for each other"),
        ([*FILES, "--group", "one"], 2, "'one' is not a whole number"),
    ],
    "checkpoints": [
        (["train", "ok.yaml", "name=n", "--resume"], 2, "no checkpoint to resume from"),
        (["train", "ok.yaml", "seed=2", "train.steps=20"], 2, "written with seed 1, not 2"),
        ([*SEEN, "train.steps=4"], 2, "restore them, or set checkpoint.data=any"),
        ([*COMPARED, "train.steps=2"], 2, "so it cannot be compared with new runs; restore the data, or remove that run"),
        (["train", "ok.yaml", "name=damaged", "train.steps=20"], 1, "none of the checkpoints in 'runs/damaged/checkpoints' can be used"),
        (["train", "ok.yaml", "name=empty", "train.steps=20"], 1, "put a copy back, or remove it"),
        (["train", "ok.yaml", "name=linked", "train.steps=20"], 1, "it is a link, and none is followed here"),
    ],
    "pictures": [
        (["train", "ok.yaml", "name=n", "data.kind=pictures", "data.path=photos/absent"], 2, "data.path: there is no 'photos/absent'"),
        (["train", "ok.yaml", "name=n", "data.kind=pictures", "data.path=data/photos"], 2, "there is no 'data/photos'; tools/get-data.sh photos brings it"),
        (["train", "ok.yaml", "name=n", "data.kind=pictures"], 2, "tools/get-data.sh photos brings some to data/photos"),
        ([*IMAGES, "data.path=photos/none"], 2, "photos/none"),
        ([*IMAGES, "data.path=photos/broken"], 2, "photos/broken"),
        ([*IMAGES, "data.path=photos/small"], 2, "photos/small"),
        ([*IMAGES, "data.path=pairs/high", "data.low_path=pairs/low"], 2, "needs a low-resolution picture of 16x16"),
        ([*IMAGES, "data.path=unlike/high", "data.low_path=unlike/low"], 2, "is no low-resolution picture of"),
        (["upscale", MODEL, "hdr.png", "-o", "a.png"], 1, "a PNG of high dynamic range"),
        (["upscale", MODEL, "moving.png", "-o", "a.png"], 1, "a PNG with moving pictures"),
        (["upscale", MODEL, "signed.tif", "-o", "a.png"], 1, "16-bit samples that are signed"),
        (["upscale", MODEL, "separated.tif", "-o", "a.png"], 1, "neither gray nor RGB"),
        (["upscale", MODEL, "scans.jpg", "-o", "a.png"], 1, "more than 100 scans"),
        (["eval", MODEL, "--data", "photos/absent"], 1, "photos/absent"),
        (["upscale", MODEL, "photos/broken/a.png", "-o", "out"], 1, "photos/broken/a.png"),
        (["gallery", MODEL, "--data", "photos/absent", "-o", "a.html"], 1, "photos/absent"),
        (["gallery", MODEL, "--data", "photos/none", "-o", "a.html"], 2, "photos/none"),
        (["gallery", MODEL, "--data", "photos/broken", "-o", "a.html"], 2, "photos/broken"),
        (["gallery", MODEL, "--data", "photos/small", "-o", "a.html"], 2, "photos/small"),
    ],
    "classes": [
        ([*CLASSES, "data.folds=5", "data.fold=5"], 2, "data.fold: 5 is not one of 5 folds"),
        ([*CLASSES, "data.placement=disjoint", "data.items_per_group=50"], 2, "50 are wanted, but group 0 has 39"),
        ([*CLASSES, "train.prior_correction=true", "train.loss=mse"], 2, "only the logits of cross_entropy can be corrected"),
        ([*CLASSES, "model.classes=3"], 2, "classes is 3, but the data has 10"),
        ([*CLASSES, "cluster.groups=[{ranks: 1}, {ranks: 1, model: {classes: 4}}]", "model.classes=10", "train.strategy=codistill"], 2,
         "groups must agree on the classes"),
        ([*CLASSES, "data.kind=mnist", "data.path=photos"], 2, "holds no 'train-images-idx3-ubyte'"),
        ([*CLASSES, "data.kind=mnist", "data.path=short"], 1, "short/train-images-idx3-ubyte: ends early"),
        ([*CLASSES, "data.kind=mnist", "data.path=gzip"], 1, "gzip/train-images-idx3-ubyte.gz: "),
        ([*CLASSES, "data.kind=mnist", "data.path=counts"], 1, "19 labels (byte 4)"),
        ([*CLASSES, "data.kind=mnist", "data.path=kind"], 1, "is no IDX file of 3 dimensions"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers.csv"], 1, "flowers.csv:3: column 2: 'wide' is no number"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers-semicolons.csv"], 1, "separated by semicolons"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers-lacking.csv"], 1, "flowers-lacking.csv:3: column 2, which names the class, is empty"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers-spaces.csv"], 1, "only spaces tell the classes"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers-unclear.csv"], 1, "is this line a header or a row?"),
        ([*CLASSES, "data.kind=iris", "data.path=flowers-utf16.csv"], 1, "save it as UTF-8"),
        ([*CLASSES, "data.kind=folder", "data.path=insects/train", "data.val_count=0", "data.val_path=insects/val"], 2,
         "lacks the class folder 'ant'"),
        ([*CLASSES, "data.kind=folder", "data.path=photos"], 2, "holds no photographs"),
        ([*CLASSES, "data.kind=folder", "data.path=photos/good"], 2, "one a class is wanted"),
    ],
    "models": [
        (["import", "module.pth", "-o", "x.safetensors"], 1, "needs Python's '__main__.Network'"),
        (["import", "script.pt", "-o", "x.safetensors"], 1, "a program of TorchScript"),
        (["import", "packed-entries.pth", "-o", "x.safetensors"], 1, "only stored files are read"),
        (["import", "states.pth", "-o", "x.safetensors"], 1, "states of training, not weights"),
        (["import", "long.pth", "-o", "x.safetensors"], 1, "instructions: no weights need so many"),
        (["import", "shared.pth", "-o", "x.safetensors"], 1, "share the same numbers"),
        (["import", "named.pth", "-o", "x.safetensors"], 1, "two tensors are called 'a'"),
        (["import", "nan.pth", "-o", "x.safetensors"], 1, "holds NaN"),
        (["import", "nothing.safetensors", "-o", "x.safetensors"], 1, "there is no tensor in it"),
        (["import", "garbage.safetensors", "-o", "x.safetensors"], 1, "no safetensors file"),
        (["train", "ok.yaml", "name=i", "model.init=garbage.safetensors"], 1, "garbage.safetensors"),
        (["eval", "missing.safetensors", "--data", "photos/good"], 1, "missing.safetensors"),
        (["eval", "truncated.safetensors", "--data", "photos/good"], 1, "truncated.safetensors"),
        (["eval", "garbage.safetensors", "--data", "photos/good"], 1, "garbage.safetensors"),
        (["eval", "foreign.safetensors", "--data", "photos/good"], 1, "foreign.safetensors"),
    ],
    "where to write": [(["train", "ok.yaml", "output=/proc/nowhere"], 1, "/proc/nowhere")],
    FULL_DISK: [
        (["train", "ok.yaml", "name=full", "output=full", "train.steps=10"], 1, "No space left on device"),
        (["export", MODEL, "-o", "full/y.onnx"], 1, "No space left on device"),
    ],
}

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def as_typed(arguments):
    return arguments if "codistill" in arguments else ["codistill", *arguments]


def run(program, folder, arguments):
    words = [program if word == "codistill" else word for word in as_typed(arguments)]
    variables = [word for word in words[:1] if re.match(r"[A-Z_]+=", word)]
    env = dict(os.environ, **ENVIRONMENT, **dict(word.split("=", 1) for word in variables))
    done = subprocess.run(words[len(variables):], cwd=folder, env=env, capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL)
    return done.returncode, our_own(done.stderr)


def our_own(text):
    """Without what mpirun adds, and without what differs from one machine to the next."""
    text = re.sub(r"^-{60,}\n.*?^-{60,}\n", "", text + "\n", flags=re.DOTALL | re.MULTILINE)
    unlike = r"\[\S+:\d+\]|(group \d+: )?device: cpu \(|'\S+': .* parameters, [\d,]+ steps\b|codistill \d"
    lines = [line for line in text.split("\n") if not re.match(unlike, line)]
    text = "\n".join(lines).replace("backends are: cpu, ref, cuda", "backends are: cpu, ref")  # whether it was built with CUDA
    text = re.sub("this build has no CUDA|there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it",
                  "there is no NVIDIA driver on this machine", text)
    return re.sub(r"Open MPI v[\d.]+\w*", "Open MPI vX.Y.Z", text).strip()


@contextlib.contextmanager
def small_disk(folder):
    """A file system of 16 KiB at folder/full; yields whether this user may make one."""
    path = os.path.join(folder, "full")
    os.makedirs(path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", path], capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", path], check=True)


def left_behind(folder):
    return set(os.listdir(os.path.join(folder, "runs"))) | {name for name in os.listdir(folder) if name.endswith(".onnx")}


def try_all(program, folder, kinds):
    """Runs the cases of these kinds; the rows of the table, and how many failed."""
    rows, failed = [], 0
    for kind in kinds:
        for arguments, code, part in CASES[kind]:
            before = left_behind(folder)
            actual, message = run(program, folder, arguments)
            rows.append((kind, as_typed(arguments), actual, message))
            # A configuration that is wrong in itself must not leave a run's folder; what only data or ranks show may.
            left = set() if {"name=i", "name=full"} & set(arguments) else left_behind(folder) - before
            if actual != code or part not in message or left:
                failed += 1
                print(f"FAILED: {' '.join(as_typed(arguments))}\n  exit {actual}, wanted {code}; wanted '{part}' in:\n{message}\n  left behind: {left}\n")
    return rows, failed


def table(rows, end):
    """The page's lines: the table, and what follows it, which is written by hand."""
    lines = ["# Bad inputs", "", "What was tried and what it printed, written by `tests/tools/test_bad_inputs.py CODISTILL --write FILE`, which also checks",
             "it. `full/` is a file system of 16 KiB.", "", "| what is wrong | command | exit | message |", "| --- | --- | --- | --- |"]
    for kind, words, code, message in rows:
        text = message.replace("|", "\\|").replace("\n", "<br>")
        lines.append(f"| {kind} | `{' '.join(words)}` | {code} | {text} |")
    return [*lines, *end]


def written_lines():
    """Those of the page, and of these what follows the table."""
    with open(TABLE, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return lines, lines[max(i for i, line in enumerate(lines) if line.startswith(f"| {FULL_DISK} |")) + 1:]


def differs(rows, mounted):
    """Prints where the written table is not of today."""
    written, end = written_lines()
    if not mounted:
        written = [line for line in written if not line.startswith(f"| {FULL_DISK} |")]
    difference = list(difflib.unified_diff(written, table(rows, end), "docs/bad-inputs.md", "printed now", lineterm="", n=0))
    if difference:
        print("\n".join([*difference, "make it anew with --write docs/bad-inputs.md"]))
    return bool(difference)


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="codistill-bad-") as folder:
        make_files(program, folder)
        with small_disk(folder) as mounted:
            rows, failed = try_all(program, folder, [kind for kind in CASES if mounted or kind != FULL_DISK])
    if len(sys.argv) > 3 and sys.argv[2] == "--write":
        lines = table(rows, written_lines()[1])
        with open(sys.argv[3], "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
    else:
        failed += differs(rows, mounted)
    print(f"{len(rows)} tried, {failed} failed, {0 if mounted else len(CASES[FULL_DISK])} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
