#include "tools/clip.h"

#include "io/json.h"
#include "tools/child.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HD_HEIGHT = 720 };

/** Two whole numbers such as "30000/1001" or "16:11"; ffmpeg's own are ints. @return whether both are above 0 */
static bool read_pair(const char *text, char between, long *over, long *under)
{
    char *end;
    *over = strtol(text, &end, 10);
    *under = *end == between ? strtol(end + 1, &end, 10) : 0;
    return *end == '\0' && *over > 0 && *under > 0 && *over <= INT_MAX && *under <= INT_MAX;
}

/** A rate such as "30000/1001"; 0 = none. */
static double rate_of(const char *text)
{
    long over, under;
    return read_pair(text, '/', &over, &under) ? (double)over / (double)under : 0;
}

/** 0 in place of a number of frames or seconds that no file has. */
static double plausible(double value)
{
    enum { MOST = 1000000000 };
    return fabs(value) <= MOST ? value : 0;
}

/** ffprobe writes numbers as texts. */
static double number(const cod_json_value *object, const char *key)
{
    return plausible(strtod(cod_json_get_string(cod_json_get(object, key), "0"), NULL));
}

static const char *text(const cod_json_value *stream, const char *key)
{
    return cod_json_get_string(cod_json_get(stream, key), "unknown");
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/** Turned by 90 degrees, as ffmpeg turns pictures for display, a pixel's width is its height. */
static bool lies_on_its_side(const cod_json_value *stream)
{
    const cod_json_value *side = cod_json_first(cod_json_get(stream, "side_data_list"));
    double rotation = 0;
    for (; side != NULL && rotation == 0; side = cod_json_next(side))
        rotation = cod_json_get_number(cod_json_get(side, "rotation"), 0);
    return fabs(fmod(rotation, 180)) == 90;
}

/**
 * Results are BT.709, so anything else has to be converted. BT.601's primaries of 525 and 625 lines and its transfer
 * function are taken for BT.709's, as players do.
 */
static void read_colours(const cod_json_value *stream, cod_clip *clip)
{
    static const char *const primaries_709[] = {"unknown", "reserved", "bt709", "smpte170m", "bt470bg", NULL},
                             *const transfers_709[] = {"unknown", "reserved",  "bt709",     "smpte170m",
                                                       "bt470bg", "bt2020-10", "bt2020-12", NULL},
                             *const bright[] = {"smpte2084", "arib-std-b67", NULL};
    const char *primaries = text(stream, "color_primaries"), *transfer = text(stream, "color_transfer"),
               *matrix = text(stream, "color_space");
    clip->bright = is_one_of(transfer, bright);
    if (is_one_of(primaries, primaries_709) && is_one_of(transfer, transfers_709) && strncmp(matrix, "bt2020", 6) != 0)
        return;
    const bool wide = clip->bright || strcmp(primaries, "bt2020") == 0;
    snprintf(clip->colours, sizeof clip->colours, "%s, %s", primaries, transfer);
    snprintf(clip->convert, sizeof clip->convert, "%s%s%s", strcmp(transfer, "unknown") == 0 ? ":tin=709" : "",
             strcmp(primaries, "unknown") != 0 ? ""
             : wide                            ? ":pin=2020"
                                               : ":pin=709",
             strcmp(matrix, "unknown") != 0 ? ""
             : wide                         ? ":min=2020_ncl"
                                            : ":min=709");
}

static void read_others(const cod_json_value *stream, cod_clip *clip)
{
    for (; stream != NULL; stream = cod_json_next(stream)) {
        const size_t used = strlen(clip->sound);
        if (strcmp(text(stream, "codec_type"), "audio") == 0)
            snprintf(clip->sound + used, sizeof clip->sound - used, "%s%s", used > 0 ? ", " : "",
                     text(stream, "codec_name"));
        clip->subtitles += strcmp(text(stream, "codec_type"), "subtitle") == 0;
    }
}

/** Whether a stream is moving pictures, and no cover of an album. */
static bool moves(const cod_json_value *stream)
{
    const cod_json_value *disposition = cod_json_get(stream, "disposition");
    return strcmp(text(stream, "codec_type"), "video") == 0 &&
           cod_json_get_number(cod_json_get(disposition, "attached_pic"), 0) == 0;
}

static bool has_alpha(const cod_json_value *stream)
{
    static const char *const formats[] = {"yuva", "rgba", "bgra", "argb", "abgr", "gbrap", "ya8", "ya16"};
    const char *format = text(stream, "pix_fmt");
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strncmp(format, formats[i], strlen(formats[i])) == 0)
            return true;
    return strcmp(text(cod_json_get(stream, "tags"), "alpha_mode"), "1") == 0;
}

static cod_status read_document(const cod_json_value *document, cod_clip *clip)
{
    const cod_json_value *first = cod_json_first(cod_json_get(document, "streams")), *stream = first,
                         *format = cod_json_get(document, "format");
    while (stream != NULL && !moves(stream))
        stream = cod_json_next(stream);
    if (stream == NULL)
        return cod_fail(COD_ERR_FORMAT, "there are no moving pictures in it");
    read_others(first, clip);
    read_colours(stream, clip);
    clip->transparent = has_alpha(stream);
    const char *mean = cod_json_get_string(cod_json_get(stream, "avg_frame_rate"), ""),
               *base = cod_json_get_string(cod_json_get(stream, "r_frame_rate"), ""),
               *ratio = cod_json_get_string(cod_json_get(stream, "sample_aspect_ratio"), "1:1"),
               *colours = cod_json_get_string(cod_json_get(stream, "color_space"), "unknown");
    /* The mean of a constant rate may be off by how the ends are counted; that of a varying one is all there is. */
    const double rate = rate_of(mean), base_rate = rate_of(base);
    const bool constant = rate == 0 || (base_rate > 0 && base_rate / rate > 0.99 && base_rate / rate < 1.01);
    long over, under;
    if (!read_pair(constant ? base : mean, '/', &over, &under))
        return cod_fail(COD_ERR_FORMAT, "it has no frame rate");
    snprintf(clip->rate, sizeof clip->rate, "%ld/%ld", over, under);
    const double duration_s = number(stream, "duration") > 0 ? number(stream, "duration") : number(format, "duration");
    clip->frames = fmax(number(stream, "nb_frames"), 0);
    if (clip->frames == 0)
        clip->frames = fmax(plausible(rate_of(clip->rate) * duration_s), 0);
    clip->late_s = number(stream, "start_time") - number(format, "start_time");
    if (read_pair(ratio, ':', &over, &under) && over != under)
        snprintf(clip->sample_ratio, sizeof clip->sample_ratio, "%ld/%ld", lies_on_its_side(stream) ? under : over,
                 lies_on_its_side(stream) ? over : under);
    clip->assume_bt709 =
        strcmp(colours, "unknown") == 0 && cod_json_get_number(cod_json_get(stream, "height"), 0) >= HD_HEIGHT;
    return COD_OK;
}

cod_status cod_clip_read(const char *output, size_t bytes, cod_clip *clip)
{
    cod_json_value *document = NULL;
    *clip = (cod_clip){0};
    cod_status status = cod_json_parse(output, bytes, &document);
    COD_THEN(status, read_document(document, clip));
    cod_json_free(document);
    return status;
}

/** Reads a child's output to its end. @param[out] text  new; free() */
static cod_status read_output(const cod_child *child, char **text, size_t *bytes)
{
    enum { LIMIT = 1 << 20 };
    *bytes = 0;
    *text = malloc(LIMIT);
    COD_REQUIRE_MEMORY(*text);
    for (ssize_t got = 1; got > 0 && *bytes<LIMIT; *bytes += got> 0 ? (size_t)got : 0)
        got = read(child->pipe, *text + *bytes, LIMIT - *bytes);
    return COD_OK;
}

cod_status cod_clip_probe(const char *input, cod_clip *clip)
{
    char file[4096 + 8], words[COD_CHILD_WORDS], *output = NULL;
    size_t bytes = 0;
    cod_child child;
    snprintf(file, sizeof file, "file:%s", input);
    const char *const args[] = {
        "ffprobe",
        "-v",
        "error",
        "-show_entries",
        "stream=codec_type,codec_name,avg_frame_rate,r_frame_rate,nb_frames,duration,start_time,sample_aspect_ratio,"
        "pix_fmt,color_space,color_transfer,color_primaries,height:stream_disposition=attached_pic:"
        "stream_tags=alpha_mode:stream_side_data=rotation:format=duration,start_time",
        "-of",
        "json",
        "-i",
        file,
        NULL};
    COD_TRY(cod_child_start(&child, args, true));
    cod_status status = read_output(&child, &output, &bytes), end = cod_child_end(&child, words);
    if (status == COD_OK && end != COD_OK)
        status = end == COD_ERR_UNSUPPORTED
                     ? cod_fail_prefix(end, "videos need ffmpeg and ffprobe (Debian: apt-get install ffmpeg)")
                     : end;
    COD_THEN(status, cod_clip_read(output, bytes, clip));
    free(output);
    return status;
}
