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

from train_support import Skip, check, check_count, png, run_cases

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
    check(after(words, "-framerate") == "25/1" and "1:a?" in words and after(words, "-c:a") == "copy" and after(words, "-crf") == "18" and
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
    check(result.code == 0 and after(words, "-framerate") == "24000/1001" and after(words, "-itsoffset") == "0.500000" and after(words, "-crf") == "30" and
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


def shades(size="16x16", rate="10", seconds="0.4"):
    """A source of ffmpeg: frame N has the colour SHADES[N] in all of its pixels."""
    return ["-f", "lavfi", "-i", f"nullsrc=s={size}:r={rate}:d={seconds},geq=r='60+20*N':g=100:b='160-10*N',format=gbrp"]


SHADES = [(60 + 20 * n, 100, 160 - 10 * n) for n in range(10)]
SINE, H264 = ["-f", "lavfi", "-i", "sine=d=0.4"], ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
ODD = {  # a file's name -> how ffmpeg makes it, and what is found of it: frames, size of the result at twice the size, sound, words
    "yuv444.mp4": (shades() + ["-c:v", "libx264", "-pix_fmt", "yuv444p"], {}),
    "yuv422p10.mov": (shades() + ["-c:v", "prores_ks", "-pix_fmt", "yuv422p10le"], {}),
    "yuv420p10.mkv": (shades() + ["-c:v", "libx264", "-pix_fmt", "yuv420p10le"], {}),
    "full_range.mp4": (shades() + ["-vf", "scale=out_range=pc", "-c:v", "libx264", "-pix_fmt", "yuvj420p"], {}),
    "rgb.mp4": (shades() + ["-c:v", "libx264rgb", "-pix_fmt", "rgb24"], {}),
    "rgb16.mkv": (shades() + ["-c:v", "ffv1", "-pix_fmt", "gbrp16le"], {}),
    "gray.mkv": (shades() + ["-c:v", "ffv1", "-pix_fmt", "gray"], {"gray": True}),
    "gray16.mkv": (shades() + ["-c:v", "ffv1", "-pix_fmt", "gray16le"], {"gray": True}),
    "palette.avi": (shades() + ["-vf", "split[a][b];[a]palettegen[p];[b][p]paletteuse", "-c:v", "rawvideo", "-pix_fmt", "pal8"], {}),
    "raw.avi": (shades() + ["-c:v", "rawvideo", "-pix_fmt", "bgr24"], {}),
    "moving.gif": (shades() + ["-vf", "split[a][b];[a]palettegen[p];[b][p]paletteuse"], {"words": "its transparency is lost"}),
    "alpha.mov": (shades() + ["-c:v", "qtrle", "-pix_fmt", "argb"], {"words": "its transparency is lost"}),
    "odd_sides.mkv": (shades("15x13") + ["-c:v", "ffv1", "-pix_fmt", "yuv444p"], {"size": (30, 26)}),
    "odd_halved.mkv": (shades("17x19") + ["-c:v", "ffv1", "-pix_fmt", "yuv420p"], {"size": (34, 38)}),
    "one_pixel.mkv": (shades("1x1") + ["-c:v", "ffv1", "-pix_fmt", "gbrp"], {"size": (2, 2)}),
    "wide_pixels.mp4": (shades("32x16") + ["-vf", "setsar=4/3", *H264], {"size": (64, 32), "ratio": "4:3"}),
    "turned.mp4": (["-i", "wide_pixels.mp4", "-c", "copy", "-metadata:s:v", "rotate=90"], {"size": (32, 64), "ratio": "3:4"}),
    "upside_down.mp4": (["-i", "wide_pixels.mp4", "-c", "copy", "-metadata:s:v", "rotate=180"], {"size": (64, 32), "ratio": "4:3"}),
    "varying.mkv": (shades(seconds="1") + ["-vf", "select='not(between(n,3,6))'", "-vsync", "vfr", *H264],
                    {"shades": [SHADES[n if n < 3 else 2 if n < 7 else n] for n in range(10)]}),
    "interlaced.mpg": (shades(rate="25", seconds="0.16") + ["-c:v", "mpeg2video", "-q:v", "1", "-flags", "+ilme+ildct"], {}),
    "two_sounds.mkv": (shades() + SINE + SINE + ["-map", "0", "-map", "1", "-map", "2", *H264, "-c:a", "aac"], {"sounds": 2}),
    "no_sound.ts": (shades() + H264, {}),
    "subtitles.mkv": (shades() + ["-i", "words.srt", *H264], {"words": "its subtitles are left out (1)"}),
    "cover_behind.mp4": (shades() + ["-i", "cover.png", "-map", "0", "-map", "1", *H264, "-c:v:1", "png", "-disposition:v:1", "attached_pic"], {}),
    "cover_first.mp4": (["-i", "cover.png", *shades(), "-map", "0", "-map", "1", *H264, "-c:v:0", "png", "-disposition:v:0", "attached_pic"], {}),
    "chapters.mkv": (shades() + SINE + ["-i", "chapters.txt", "-map_chapters", "2", *H264], {"sounds": 1, "chapters": 2}),
    "begins_at_5.mkv": (shades() + SINE + [*H264, "-output_ts_offset", "5"], {"sounds": 1}),
    "sound_first.mkv": (["-itsoffset", "0.5", *shades(), *SINE, *H264, "-vsync", "vfr"], {"sounds": 1, "late": 0.5}),
    "stream.ts": (shades() + SINE + [*H264, "-c:a", "aac"], {"sounds": 1}),
    "flash.flv": (shades() + SINE + [*H264, "-c:a", "aac"], {"sounds": 1}),
    "windows.wmv": (shades() + SINE + ["-q:v", "1"], {"sounds": 1}),
    "web.webm": (shades() + SINE + ["-c:v", "libvpx-vp9", "-c:a", "libopus"], {"sounds": 1}),
    "one_frame.mp4": (shades() + ["-frames:v", "1", *H264], {"shades": SHADES[:1]}),
    "no_frame.mp4": (shades() + ["-t", "0", *H264], "there are no moving pictures in it"),
    "sound_alone.mp4": (SINE + ["-c:a", "aac"], "there are no moving pictures in it"),
    "cover_alone.mp4": (SINE + ["-i", "cover.png", "-map", "0", "-map", "1", "-c:v", "png", "-disposition:v", "attached_pic"],
                        "there are no moving pictures in it"),
}
CUT = {  # parts of files, in 1000 of their bytes, and what is said of them
    "cut_head.mp4": ("yuv444.mp4", 500, "moov atom not found"),
    "cut.mkv": ("rgb16.mkv", 900, "a part of it cannot be decoded: File ended prematurely"),
    "nothing.mp4": ("yuv444.mp4", 0, "is an empty file, not a video"),
}


def probe(bench, name):
    words = ["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=codec_type,width,height,nb_read_frames,sample_aspect_ratio,start_time",
             "-show_chapters", "-of", "json", name]
    return json.loads(subprocess.run(words, cwd=bench.folder, check=True, capture_output=True).stdout)


def odd_files(bench):
    """By ffmpeg itself: every frame of what cameras and programs write arrives with its colours, beside its sound."""
    if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
        raise Skip("ffmpeg is not installed")

    refused = sum(isinstance(expected, str) for _, expected in ODD.values())
    check_count("videos whose frames arrive", len(ODD) - refused)
    check_count("videos that are refused, or cut off", refused + len(CUT))

    def ffmpeg(*words):
        return subprocess.run(["ffmpeg", "-v", "error", *words], cwd=bench.folder, check=True, capture_output=True).stdout

    bench.write("words.srt", "1\n00:00:00,000 --> 00:00:00,300\nhello\n")
    bench.write("chapters.txt", ";FFMETADATA1\n" + "".join(f"[CHAPTER]\nTIMEBASE=1/10\nSTART={at}\nEND={at + 2}\ntitle={at}\n" for at in (0, 2)))
    bench.write("cover.png", png(8, 8))
    for name, (words, expected) in ODD.items():
        output = "big.webm" if name.endswith("webm") else "big.mkv"
        ffmpeg(*words, name)
        result = bench.run("upscale", "bicubic", name, "-o", output, "--scale", "2", "--force")
        if isinstance(expected, str):
            check(result.code == 1 and f"{name}: {expected}" in result.err, name, result)
            continue
        found = probe(bench, output)
        pictures, *sounds = found["streams"]
        right = expected.get("shades", SHADES[:4])
        check(result.code == 0 and expected.get("words", "") in result.err, name, result)
        check((pictures["width"], pictures["height"]) == expected.get("size", (32, 32)), f"{name}: {pictures}")
        check(pictures.get("sample_aspect_ratio", "1:1") == expected.get("ratio", "1:1"), f"{name}: {pictures}")
        check(len(sounds) == expected.get("sounds", 0) and len(found["chapters"]) == expected.get("chapters", 0), f"{name}: {found}")
        if sounds:
            late = float(pictures["start_time"]) - float(sounds[0]["start_time"])
            check(abs(late - expected.get("late", 0)) < 0.11, f"{name}: the pictures begin {late} s behind the sound")
        pixels = ffmpeg("-copyts", "-i", output, "-map", "0:V:0", "-vsync", "passthrough", "-vf", "format=rgb24,crop=1:1", "-f", "rawvideo", "-")
        colours = [tuple(pixels[at:at + 3]) for at in range(0, len(pixels), 3)]
        check(len(colours) == len(right), f"{name}: {len(colours)} frames")
        for colour, shade in zip(colours, right, strict=True):
            shade = [round(0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2])] * 3 if expected.get("gray") else shade
            check(all(abs(a - b) <= 5 for a, b in zip(colour, shade, strict=True)), f"{name}: {colours}, not {right}")
    for name, (whole, share, words) in CUT.items():
        data = bench.read(whole)
        bench.write(name, data[:len(data) * share // 1000])
        result = bench.run("upscale", "bicubic", name, "-o", "big.mkv", "--force")
        check((result.code == 0) == ("a part" in words) and words in result.err, name, result)


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


CASES = {"frames": frames, "faults": faults, "refuses": refuses, "interrupted": interrupted, "progress": progress, "odd": odd, "real": real, "real-odd": real_odd, "odd-files": odd_files}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
