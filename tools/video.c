#include "tools/video.h"

#include "core/duration.h"
#include "core/file_kind.h"
#include "core/log.h"
#include "core/trace.h"
#include "io/file.h"
#include "tools/child.h"
#include "tools/clip.h"
#include "tools/print.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { RGB = 3, PATH_BYTES = 4096 + 8, FILTER_BYTES = 512, CONVERSION_BYTES = 320, PIPE_BYTES = 1 << 20 };

/** Containers that are written: ffmpeg's name for each, and the encoder that players of it understand. */
static const struct {
    const char *ending, *format, *encoder;
} containers[] = {{".mp4", "mp4", "libx264"},
                  {".m4v", "mp4", "libx264"},
                  {".mov", "mov", "libx264"},
                  {".mkv", "matroska", "libx264"},
                  {".webm", "webm", "libvpx-vp9"}};

enum { CONTAINERS = sizeof containers / sizeof containers[0] };

/** Whose pipe broke. */
typedef enum culprit { NOBODY, DECODER, ENCODER } culprit;

typedef struct pipeline {
    const cod_video_job *job;
    cod_clip clip;
    char *temporary; /**< path that the encoder writes */
    cod_child decoder, encoder;
    FILE *frames; /**< the decoder's output */
    culprit broken;
    cod_image frame;
    cod_video_result *result;
    double start_s, shown_s;
} pipeline;

static volatile sig_atomic_t asked;

static void end_children(int signal)
{
    asked = signal;
    cod_child_kill_all();
}

static int container_of(const char *path)
{
    const char *ending = strrchr(path, '.');
    int i = 0;
    while (i < CONTAINERS && (ending == NULL || strcasecmp(ending, containers[i].ending) != 0))
        i++;
    return i;
}

bool cod_video_is_writable(const char *path)
{
    return container_of(path) < CONTAINERS;
}

bool cod_video_is_called(const char *path)
{
    static const char *const others[] = {".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".wmv", ".flv", ".ogv", ".3gp"};
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending != NULL && i < sizeof others / sizeof others[0]; i++)
        if (strcasecmp(ending, others[i]) == 0)
            return true;
    return cod_video_is_writable(path);
}

/**
 * Filters that turn colours into BT.709. HDR is brought to the brightness of a reference white of 203 cd/m2 (ITU-R
 * BT.2408), and what is brighter is compressed.
 */
static void make_conversion(const cod_clip *clip, char filter[CONVERSION_BYTES])
{
    if (clip->bright)
        snprintf(filter, CONVERSION_BYTES,
                 ",zscale=t=linear:npl=203%s,format=gbrpf32le,zscale=p=709,tonemap=mobius:desat=0,"
                 "zscale=t=709:m=709:r=limited,format=yuv444p16le",
                 clip->convert);
    else if (clip->colours[0] != '\0')
        snprintf(filter, CONVERSION_BYTES, ",zscale=p=709:t=709:m=709:r=limited%s,format=yuv444p16le", clip->convert);
    else
        filter[0] = '\0';
}

/** Its frames are counted from the first: how late that is, the encoder is told. */
static cod_status start_decoder(pipeline *p)
{
    char file[PATH_BYTES], filter[FILTER_BYTES], convert[CONVERSION_BYTES];
    const bool converts = p->clip.colours[0] != '\0';
    snprintf(file, sizeof file, "file:%s", p->job->input);
    make_conversion(&p->clip, convert);
    snprintf(
        filter, sizeof filter,
        "fps=%s,setpts=PTS-STARTPTS%s,scale=in_color_matrix=%s:flags=bicubic+accurate_rnd+full_chroma_int,format=rgb24",
        p->clip.rate, convert, converts || p->clip.assume_bt709 ? "bt709" : "auto");
    const char *const args[] = {"ffmpeg", "-v",   "error", "-nostdin",   "-i",   file,  "-map",   "0:V:0",
                                "-vf",    filter, "-f",    "image2pipe", "-c:v", "ppm", "pipe:1", NULL};
    COD_TRY(cod_child_start(&p->decoder, args, true));
    fcntl(p->decoder.pipe, F_SETPIPE_SZ, PIPE_BYTES);
    p->frames = fdopen(p->decoder.pipe, "rb");
    COD_REQUIRE_MEMORY(p->frames);
    p->decoder.pipe = -1;
    return COD_OK;
}

/** Colours are coded as players expect those of large pictures, and labelled so. */
static cod_status start_encoder(pipeline *p, const cod_image *first)
{
    const int container = container_of(p->job->output);
    char clip_file[PATH_BYTES], file[PATH_BYTES], size[64], filter[FILTER_BYTES], late[32], crf[16];
    const char *ratio = p->clip.sample_ratio;
    snprintf(clip_file, sizeof clip_file, "file:%s", p->job->input);
    snprintf(file, sizeof file, "file:%s", p->temporary);
    snprintf(size, sizeof size, "%lldx%lld", (long long)first->width, (long long)first->height);
    snprintf(
        filter, sizeof filter,
        "crop=%lld:%lld:0:0,scale=out_color_matrix=bt709:out_range=tv:flags=bicubic+accurate_rnd,format=yuv420p%s%s",
        (long long)(first->width & ~1LL), (long long)(first->height & ~1LL), ratio[0] != '\0' ? ",setsar=" : "", ratio);
    snprintf(late, sizeof late, "%.6f", p->clip.late_s);
    snprintf(crf, sizeof crf, "%d", p->job->crf);
    /* clang-format off */
    const char *const args[] = {
        "ffmpeg", "-v", "error", "-nostdin", "-y",
        "-itsoffset", late, "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-framerate", p->clip.rate,
        "-i", "pipe:0",
        "-i", clip_file, "-map", "0:v:0", "-map", "1:a?", "-map_metadata", "1", "-c:a", "copy",
        "-vf", filter, "-c:v", containers[container].encoder, "-crf", crf, "-b:v", "0",
        "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709",
        "-f", containers[container].format, file, NULL};
    /* clang-format on */
    p->result->out_width = first->width & ~1LL;
    p->result->out_height = first->height & ~1LL;
    COD_TRY(cod_child_start(&p->encoder, args, false));
    fcntl(p->encoder.pipe, F_SETPIPE_SZ, PIPE_BYTES);
    return COD_OK;
}

/** Reads a frame of Netpbm's P6. @param[out] got  false at the end of the clip */
static cod_status read_frame(pipeline *p, bool *got)
{
    long long width = 0, height = 0;
    const int found = fscanf(p->frames, "P6 %lld %lld 255", &width, &height);
    *got = found == 2 && fgetc(p->frames) == '\n';
    if (found == EOF)
        return COD_OK;
    if (*got && p->frame.pixels == NULL) {
        COD_TRY(cod_image_init(&p->frame, width, height, RGB, 8));
        p->result->width = width;
        p->result->height = height;
    }
    const bool whole = *got && width == p->frame.width && height == p->frame.height &&
                       fread(p->frame.pixels, 1, cod_image_bytes(&p->frame), p->frames) == cod_image_bytes(&p->frame);
    p->broken = whole ? NOBODY : DECODER;
    return whole ? COD_OK : cod_fail(COD_ERR_FORMAT, "ffmpeg's pictures end within frame %zu", p->result->frames + 1);
}

static cod_status write_frame(pipeline *p, const cod_image *image)
{
    const char *from = image->pixels;
    for (size_t left = cod_image_bytes(image); left > 0;) {
        const ssize_t written = write(p->encoder.pipe, from, left);
        if (written < 0 && errno != EINTR) {
            p->broken = ENCODER;
            return cod_fail(COD_ERR_IO, "cannot write to ffmpeg: %s", strerror(errno));
        }
        from += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    return COD_OK;
}

static void show_progress(pipeline *p, bool last)
{
    const double now = cod_clock_s(), passed = now - p->start_s, done = (double)p->result->frames;
    if (!p->job->progress || (!last && now - p->shown_s < 0.25))
        return;
    p->shown_s = now;
    if (last)
        fputs("\r\033[K", stderr);
    else if (p->clip.frames >= done)
        cod_print_progress(stderr, p->job->input, "frame %.0f of %.0f, %.2f frames/s, %s left", done, p->clip.frames,
                           done / passed, cod_duration(passed / done * (p->clip.frames - done)).text);
    else
        cod_print_progress(stderr, p->job->input, "frame %.0f", done);
}

static cod_status run_frames(pipeline *p)
{
    p->start_s = cod_clock_s();
    for (bool got = true;;) {
        cod_image large = {0};
        COD_TRY(read_frame(p, &got));
        if (!got || asked)
            return COD_OK;
        cod_status status = p->job->map(p->job->context, &p->frame, &large);
        if (p->encoder.pid == 0)
            COD_THEN(status, start_encoder(p, &large));
        COD_THEN(status, write_frame(p, &large));
        cod_image_clear(&large);
        COD_TRY(status);
        p->result->frames++;
        show_progress(p, false);
    }
}

/** Says what to do where the result's container does not hold the sound as it is. */
static cod_status explain_sound(const pipeline *p, cod_status status)
{
    const char *const words[] = {"codec not currently supported in container", "Only VP8 or VP9 or AV1 video"};
    for (size_t i = 0; i < sizeof words / sizeof words[0] && status != COD_OK; i++)
        if (strstr(cod_error_message(), words[i]) != NULL)
            return cod_fail(COD_ERR_UNSUPPORTED, "its sound (%s) cannot be kept in a %s file; a .mkv file takes it",
                            p->clip.sound, strrchr(p->job->output, '.'));
    return status;
}

/** ffmpeg ends well even where the end of the file did not fit on the disk; all that tells are its words. */
static cod_status end_encoder(pipeline *p)
{
    char words[COD_CHILD_WORDS];
    COD_TRY(explain_sound(p, cod_child_end(&p->encoder, words)));
    if (strstr(words, "Error writing") != NULL || strstr(words, "Error closing") != NULL)
        return cod_fail(COD_ERR_IO, "ffmpeg: %s", words);
    if (words[0] != '\0')
        cod_log_warn("%s: ffmpeg: %s", p->job->output, words);
    return COD_OK;
}

/** Ends both processes. Where a pipe broke, the process behind it knows why. */
static cod_status end_processes(pipeline *p, cod_status status)
{
    char words[COD_CHILD_WORDS] = "";
    cod_status end = COD_OK;
    if (p->frames != NULL)
        fclose(p->frames);
    if (p->broken == ENCODER)
        end = explain_sound(p, cod_child_end(&p->encoder, words));
    else if (p->broken == DECODER || status == COD_OK)
        end = cod_child_end(&p->decoder, words);
    if (end != COD_OK)
        status = end;
    if (status == COD_OK && p->result->frames == 0 && !asked)
        status = cod_fail(COD_ERR_FORMAT, "no frame can be decoded%s%s", words[0] != '\0' ? ": " : "", words);
    if (status == COD_OK && words[0] != '\0')
        cod_log_warn("%s: a part of it cannot be decoded: %s", p->job->input, words);
    if (!asked)
        COD_THEN(status, end_encoder(p));
    cod_child_kill(&p->decoder);
    cod_child_kill(&p->encoder);
    if (asked)
        return cod_fail(COD_ERR_INTERRUPTED, "stopped by signal %d (%s) after %zu frames; nothing was written",
                        (int)asked, strsignal(asked), p->result->frames);
    return status;
}

/** Gives the result its name. */
static cod_status commit(const pipeline *p)
{
    const int file = open(p->temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool done =
        file >= 0 && lseek(file, 0, SEEK_END) > 0 && fsync(file) == 0 && rename(p->temporary, p->job->output) == 0;
    const int reason = errno;
    if (file >= 0)
        close(file);
    return done ? COD_OK : cod_fail(COD_ERR_IO, "%s: cannot write: %s", p->job->output, strerror(reason));
}

/**
 * Makes "folder/.name.PID-N.tmp" beside the result, as io/file.h names what it removes after a crash. N is drawn: the
 * encoder follows what has the name, so nobody else may have put a link there before.
 */
static cod_status make_temporary(pipeline *p)
{
    const char *output = p->job->output, *slash = strrchr(output, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - output) + 1 : 0, room = strlen(output) + 64;
    uint64_t drawn;
    COD_TRY(cod_file_clean(output));
    if (getentropy(&drawn, sizeof drawn) != 0)
        return cod_fail(COD_ERR_IO, "the system gives no random bytes");
    p->temporary = malloc(room);
    COD_REQUIRE_MEMORY(p->temporary);
    snprintf(p->temporary, room, "%.*s.%s.%ld-%llu.tmp", (int)folder, output, output + folder, (long)getpid(),
             (unsigned long long)drawn);
    const int file = open(p->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0)
        return cod_fail(COD_ERR_IO, "%s: cannot write: %s", output, strerror(errno));
    close(file);
    return COD_OK;
}

static cod_status run_pipeline(pipeline *p)
{
    COD_TRY(cod_clip_probe(p->job->input, &p->clip));
    if (p->clip.colours[0] != '\0')
        cod_log_info("%s: its colours (%s) are %s BT.709", p->job->input, p->clip.colours,
                     p->clip.bright ? "high dynamic range and are tone-mapped to" : "converted to");
    if (p->clip.transparent)
        cod_log_warn("%s: its transparency is lost: videos are written without", p->job->input);
    if (p->clip.subtitles > 0)
        cod_log_warn("%s: its subtitles are left out (%zu): pictures and sound alone are written", p->job->input,
                     p->clip.subtitles);
    snprintf(p->result->rate, sizeof p->result->rate, "%s", p->clip.rate);
    COD_TRY(make_temporary(p));
    cod_status status = start_decoder(p);
    COD_THEN(status, run_frames(p));
    status = end_processes(p, status);
    show_progress(p, true);
    COD_THEN(status, commit(p));
    if (status != COD_OK)
        unlink(p->temporary);
    p->result->seconds = cod_clock_s() - p->start_s;
    return status;
}

cod_status cod_video_run(const cod_video_job *job, cod_video_result *result)
{
    const int signals[] = {SIGPIPE, SIGINT, SIGTERM};
    struct sigaction before[3];
    *result = (cod_video_result){0};
    COD_TRY(cod_check_file_kind(job->input, COD_FILE_VIDEO | COD_FILE_PICTURE, "a video"));
    pipeline p = {.job = job, .result = result};
    asked = 0;
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i],
                  &(struct sigaction){.sa_handler = i == 0 ? SIG_IGN : end_children, .sa_flags = SA_RESTART},
                  &before[i]);
    const cod_status status = run_pipeline(&p);
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &before[i], NULL);
    cod_image_clear(&p.frame);
    free(p.temporary);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", job->input);
}
