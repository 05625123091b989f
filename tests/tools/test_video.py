#!/usr/bin/env python3
"""`codistill upscale` on videos: python3 test_video.py CODISTILL [CASE ...]

All cases but `real` have a stand-in for ffmpeg and ffprobe, whose clips are JSON: what they hold, and how the programs fail on them.
"""

import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

from train_support import Skip, check, run_cases

STAND_IN = """#!{python}
import hashlib, json, os, signal, sys, time

def named(option):
    return sys.argv[sys.argv.index(option) + 1]

def fail(part, frame):
    if clip.get("at", 0) == frame and clip.get("who") == part:
        if clip["how"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if clip["how"] == "sleeps":
            time.sleep(600)
        sys.exit(clip["how"])

is_encoder = "rawvideo" in sys.argv
inputs = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "-i"]
clip = json.load(open(inputs[-1].removeprefix("file:")))
width, height = clip.get("size", [6, 4])
if sys.argv[0].endswith("ffprobe"):
    fail("probe", 0)
    print(json.dumps({{"streams": clip["streams"], "format": {{"start_time": "0.0"}}}}))
elif not is_encoder:
    json.dump(sys.argv[1:], open("decoder.json", "w"))
    for frame in range(clip["frames"]):
        head = b"P6\\n%d %d\\n255\\n" % (width, height)
        if clip.get("who") == "decoder" and frame == clip.get("at", 0):
            sys.stdout.buffer.write(head + bytes(5))
            sys.stdout.flush()
        fail("decoder", frame)
        time.sleep(clip.get("pause", 0))
        sys.stdout.buffer.write(head + bytes([frame]) * (3 * width * height))
        sys.stdout.flush()
else:
    wide, high = map(int, named("-s").split("x"))
    there = os.path.exists(sys.argv[-1].removeprefix("file:"))
    open(sys.argv[-1].removeprefix("file:"), "w").write("half")
    frames = []
    while data := sys.stdin.buffer.read(3 * wide * high):
        fail("encoder", len(frames))
        frames.append([len(data), data[0], len(set(data))])
    fail("encoder", -1)
    if clip.get("who") == "trailer":
        print(clip["how"], file=sys.stderr)
    json.dump({{"arguments": sys.argv[1:], "size": [wide, high], "frames": frames, "there": there}}, open(sys.argv[-1].removeprefix("file:"), "w"))
"""

STREAM = {"codec_type": "video", "avg_frame_rate": "25/1", "r_frame_rate": "25/1", "nb_frames": "7", "start_time": "0.0", "height": 4}


def stand_in(bench):
    """Puts it into PATH."""
    for name in ("ffmpeg", "ffprobe"):
        os.chmod(bench.write(f"bin/{name}", STAND_IN.format(python=sys.executable)), 0o755)
    bench.environment["PATH"] = f"{bench.path('bin')}:{os.environ['PATH']}"


def clip(bench, stream=None, **what):
    bench.write("clip.mp4", json.dumps({"frames": 7, "streams": [{**STREAM, **(stream or {})}], **what}))


def upscale(bench, *words, output="big.mp4", **options):
    return bench.run("upscale", "bicubic", "clip.mp4", "-o", output, *words, **options)


def files(bench):
    return sorted(name for name in os.listdir(bench.path()) if "big" in name)


def after(arguments, word):
    return arguments[arguments.index(word) + 1]


def frames(bench):
    """Every frame arrives, in order and of the right size, at the clip's rate, with its sound beside it."""
    stand_in(bench)
    clip(bench)
    result = upscale(bench, "--scale", "3")
    check(result.code == 0 and "big.mp4: 7 frames at 25/1 a second, 6x4 -> 18x12" in result.out, "the clip is upscaled", result)
    made = json.loads(bench.read("big.mp4"))
    check(made["frames"] == [[3 * 18 * 12, i, 1] for i in range(7)], f"other frames: {made['frames']}")
    words = made["arguments"]
    check(after(words, "-r") == "25/1" and "1:a?" in words and after(words, "-c:a") == "copy" and after(words, "-crf") == "18" and
          after(words, "-c:v") == "libx264" and after(words, "-f") == "rawvideo", f"the encoder was told {words}")
    check(files(bench) == ["big.mp4"], f"left behind: {files(bench)}")
    # The encoder opens what has the name, a link too: nobody can know the name before the file is there.
    check(made["there"] and re.fullmatch(r"file:\.big\.mp4\.\d+-\d{6,}\.tmp", words[-1]), f"it writes {words[-1]}, there: {made['there']}")
    result = upscale(bench)
    check(result.code == 2 and "big.mp4: exists already; --force replaces it" in result.err, "it is not replaced", result)
    # A varying rate, pixels that are not square, pictures later than the sound, an odd size.
    clip(bench, {"avg_frame_rate": "24000/1001", "r_frame_rate": "90000/1", "sample_aspect_ratio": "8:9", "start_time": "0.5"}, size=[5, 3])
    result = upscale(bench, "--scale", "1", "--crf", "30", "--force", output="big.webm")
    words = json.loads(bench.read("big.webm"))["arguments"]
    check(result.code == 0 and after(words, "-r") == "24000/1001" and after(words, "-itsoffset") == "0.500000" and after(words, "-crf") == "30" and
          after(words, "-vf").startswith("crop=4:2:0:0,") and after(words, "-vf").endswith(",setsar=8/9") and after(words, "-c:v") == "libvpx-vp9",
          f"the encoder was told {words}", result)


FAULTS = [  # who fails, at which frame, how, and what is said of it
    ("probe", 0, "moov atom not found", "clip.mp4: ffprobe: moov atom not found"),
    ("decoder", 3, "killed", "ffmpeg was killed by signal 9"),
    ("decoder", 3, "no such block", "clip.mp4: ffmpeg: no such block"),
    ("decoder", 0, "no decoder", "clip.mp4: ffmpeg: no decoder"),
    ("encoder", 0, "Unknown encoder", "clip.mp4: ffmpeg: Unknown encoder"),
    ("encoder", 5, "killed", "ffmpeg was killed by signal 9"),
    ("encoder", -1, "[mp4 @ 0x12] av_interleaved_write_frame(): No space left on device", "ffmpeg: av_interleaved_write_frame(): No space left on device"),
    ("trailer", 0, "Error writing trailer: No space left on device", "ffmpeg: Error writing trailer: No space left on device"),
]


def faults(bench):
    """Whatever fails is told, and leaves what was there under the result's name as it was."""
    stand_in(bench)
    bench.write("big.mp4", "precious")
    for who, at, how, part in FAULTS:
        clip(bench, who=who, at=at, how=how, size=[64, 64])
        result = upscale(bench, "--force")
        check(result.code == 1 and part in result.err, f"{who} at {at}: {how}", result)
        check(files(bench) == ["big.mp4"] and bench.read("big.mp4") == b"precious", f"{who} at {at}: there are {files(bench)}")
    clip(bench, frames=0)
    result = upscale(bench, "--force")
    check(result.code == 1 and "clip.mp4: no frame can be decoded" in result.err, "no frames", result)
    bench.write("clip.mp4", json.dumps({"streams": []}))
    result = upscale(bench, "--force")
    check(result.code == 1 and "clip.mp4: there are no moving pictures in it" in result.err, "no pictures", result)


def refuses(bench):
    """What cannot be a video's result, more than one video, and a machine without ffmpeg."""
    clip(bench)
    for words, part in ((["clip.mp4", "-o", "big.png"], "big.png: a video is written as a .mp4, .mov, .mkv or .webm file"),
                        (["clip.mp4", "a.png", "-o", "big"], "clip.mp4: a video is upscaled alone"),
                        (["clip.mp4", "-o", "clip.mp4"], "the output would replace the input")):
        bench.refused(part, "upscale", "bicubic", *words)
    result = upscale(bench, environment={"PATH": bench.path("nowhere")})
    check(result.code == 1 and "videos need ffmpeg and ffprobe (Debian: apt-get install ffmpeg): cannot start ffprobe" in result.err, "no ffmpeg", result)
    check(not files(bench), f"left behind: {files(bench)}")


def interrupted(bench):
    """SIGINT and SIGTERM end it and both processes, and leave nothing."""
    stand_in(bench)
    clip(bench, who="encoder", at=-1, how="sleeps")
    for number in (signal.SIGINT, signal.SIGTERM):
        process = bench.start("upscale", "bicubic", "clip.mp4", "-o", "big.mp4")
        begin = time.monotonic()
        while not files(bench) and time.monotonic() - begin < 300:
            time.sleep(0.01)
        process.send_signal(number)
        result = bench.wait(process, ["upscale"], 300)
        check(result.code == 1 and f"stopped by signal {number.value}" in result.err and "nothing was written" in result.err, "it is told", result)
        check(not files(bench), f"left behind: {files(bench)}")


def progress(bench):
    """A terminal shows which frame it is at, how fast, and how long it will take."""
    stand_in(bench)
    clip(bench, pause=0.15)
    ours, theirs = pty.openpty()
    result = upscale(bench, stderr=theirs)
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    check(result.code == 0 and " of 7, " in text and " frames/s, 0:00:0" in text and " left" in text, f"shown: {text!r}", result)


def odd(bench):
    """HDR and other colours are converted and said, transparency is said, a pixel of a turned picture is turned, covers are passed over."""
    stand_in(bench)
    hdr = {"color_primaries": "bt2020", "color_transfer": "smpte2084", "color_space": "bt2020nc"}
    wide = {"color_primaries": "smpte432", "color_transfer": "iec61966-2-1", "color_space": "unknown"}
    plain = {"color_primaries": "bt470bg", "color_transfer": "unknown", "color_space": "smpte170m"}
    cover, sound = {"codec_type": "video", "disposition": {"attached_pic": 1}}, {"codec_type": "audio", "codec_name": "aac"}
    for stream, filters, said in ((hdr, "tonemap=mobius", "its colours (bt2020, smpte2084) are high dynamic range and are tone-mapped to BT.709"),
                                  ({"color_transfer": "arib-std-b67"}, "zscale=t=linear:npl=203:pin=2020:min=2020_ncl,", "(unknown, arib-std-b67) are high"),
                                  (wide, ",zscale=p=709:t=709:m=709:r=limited:min=709,", "its colours (smpte432, iec61966-2-1) are converted to BT.709"),
                                  (plain, None, None), ({}, None, None)):
        clip(bench, stream)
        result = upscale(bench, "--force")
        words = after(json.loads(bench.read("decoder.json")), "-vf")
        check(result.code == 0 and (said or "") in result.err and ("its colours" in result.err) == bool(said), f"{stream}", result)
        check((filters or "") in words and ("zscale" in words) == bool(filters), f"{stream}: {words}")
    for stream in ({"pix_fmt": "yuva420p"}, {"tags": {"alpha_mode": "1"}}):
        clip(bench, stream)
        check("its transparency is lost" in upscale(bench, "--force").err, f"{stream}: not a word")
    for rotation, ratio in ((90, "3/4"), (-90, "3/4"), (180, "4/3")):
        clip(bench, {"sample_aspect_ratio": "4:3", "side_data_list": [{}, {"rotation": rotation}]})
        upscale(bench, "--force")
        words = after(json.loads(bench.read("big.mp4"))["arguments"], "-vf")
        check(words.endswith(f",setsar={ratio}"), f"turned by {rotation}: {words}")
    bench.write("clip.mp4", json.dumps({"frames": 2, "streams": [cover, sound, {**STREAM, "avg_frame_rate": "10/1", "r_frame_rate": "10/1"}]}))
    result = upscale(bench, "--force")
    check(result.code == 0 and "2 frames at 10/1" in result.out, "a cover before the pictures", result)
    bench.write("clip.mp4", json.dumps({"frames": 2, "streams": [cover, sound]}))
    check("there are no moving pictures in it" in upscale(bench, "--force").err, "a cover alone is taken for a video")


def real_odd(bench):
    """By ffmpeg itself: sound that the result's container cannot hold is named, with one that can; HDR becomes SDR of like brightness."""
    if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
        raise Skip("ffmpeg is not installed")

    def make(name, *words):
        subprocess.run(["ffmpeg", "-v", "error", *words, name], cwd=bench.folder, check=True)

    make("pcm.mov", "-f", "lavfi", "-i", "testsrc2=s=48x32:d=0.4:r=10", "-f", "lavfi", "-i", "sine=d=0.4", "-c:v", "libx264", "-pix_fmt", "yuv420p",
         "-c:a", "pcm_s16le")
    for output in ("big.mp4", "big.webm"):
        result = bench.run("upscale", "bicubic", "pcm.mov", "-o", output, "--scale", "2")
        check(result.code == 1 and f"its sound (pcm_s16le) cannot be kept in a {output[3:]} file; a .mkv file takes it" in result.err, output, result)
    check(not files(bench), f"left behind: {files(bench)}")
    bench.done("upscale", "bicubic", "pcm.mov", "-o", "big.mkv", "--scale", "2")
    # A gray of 203 cd/m2, HDR's reference white, has code 0.58 in PQ.
    make("hdr.mp4", "-f", "lavfi", "-i", "color=black:s=64x48:d=0.3:r=10,format=yuv420p10le,geq=lum=64+0.5807*876:cb=512:cr=512", "-c:v", "libx264",
         "-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc")
    result = bench.run("upscale", "bicubic", "hdr.mp4", "-o", "sdr.mp4", "--scale", "2")
    check(result.code == 0 and "tone-mapped" in result.err, "HDR", result)
    grays = subprocess.run(["ffmpeg", "-v", "error", "-i", "sdr.mp4", "-vf", "scale=1:1", "-f", "rawvideo", "-pix_fmt", "gray", "-"], cwd=bench.folder,
                           check=True, capture_output=True).stdout
    check(all(150 < gray < 256 for gray in grays) and grays, f"reference white became {list(grays)} of 255")


def real(bench):
    """By ffmpeg itself: the number and the order of the frames, their rate, and the sound's bytes."""
    if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
        raise Skip("ffmpeg is not installed")

    def ffmpeg(*words):
        return subprocess.run(["ffmpeg", "-v", "error", *words], cwd=bench.folder, check=True, capture_output=True).stdout

    # Each frame is brighter than the one before.
    ffmpeg("-f", "lavfi", "-i", "color=black:size=64x48:rate=30000/1001:duration=0.6,geq=lum='32+N*10':cb=128:cr=128", "-f", "lavfi", "-i",
           "sine=frequency=440:duration=0.6", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", "clip.mp4")
    result = upscale(bench, "--scale", "2")
    check(result.code == 0, "the clip is upscaled", result)

    def stream(path, kind):
        words = ["ffprobe", "-v", "error", "-select_streams", kind, "-count_frames", "-show_entries", "stream=width,height,r_frame_rate,nb_read_frames",
                 "-of", "json", path]
        return json.loads(subprocess.run(words, cwd=bench.folder, check=True, capture_output=True).stdout)["streams"][0]

    first, second = stream("clip.mp4", "V:0"), stream("big.mp4", "V:0")
    check(second == {**first, "width": 128, "height": 96}, f"{first} became {second}")
    sounds = [hashlib.md5(ffmpeg("-i", name, "-map", "0:a", "-c", "copy", "-f", "data", "-")).hexdigest() for name in ("clip.mp4", "big.mp4")]
    check(sounds[0] == sounds[1], "the sound has changed")
    grays = [list(ffmpeg("-i", name, "-vf", "scale=1:1", "-f", "rawvideo", "-pix_fmt", "gray", "-")) for name in ("clip.mp4", "big.mp4")]
    check(len(grays[0]) == len(grays[1]) >= 17 and grays[1] == sorted(grays[1]), f"another order: {grays[1]}")
    check(all(abs(a - b) <= 3 for a, b in zip(*grays, strict=True)), f"other colours: {grays}")
    check(files(bench) == ["big.mp4"], f"left behind: {files(bench)}")


CASES = {"frames": frames, "faults": faults, "refuses": refuses, "interrupted": interrupted, "progress": progress, "odd": odd, "real": real, "real-odd": real_odd}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
