#include "tools/clip.h"

#include "io/json.h"
#include "tools/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HD_HEIGHT = 720 };

/** A fraction such as "30000/1001"; 0 = none. */
static double fraction(const char *text)
{
    long over = 0, under = 0;
    return sscanf(text, "%ld/%ld", &over, &under) == 2 && over > 0 && under > 0 ? (double)over / (double)under : 0;
}

/** ffprobe writes numbers as texts. */
static double number(const cod_json_value *object, const char *key)
{
    return strtod(cod_json_get_string(cod_json_get(object, key), "0"), NULL);
}

static cod_status clip_read(const cod_json_value *document, cod_clip *clip)
{
    const cod_json_value *stream = cod_json_first(cod_json_get(document, "streams")),
                         *format = cod_json_get(document, "format");
    if (stream == NULL)
        return cod_fail(COD_ERR_FORMAT, "there are no moving pictures in it");
    const char *mean = cod_json_get_string(cod_json_get(stream, "avg_frame_rate"), ""),
               *base = cod_json_get_string(cod_json_get(stream, "r_frame_rate"), ""),
               *ratio = cod_json_get_string(cod_json_get(stream, "sample_aspect_ratio"), "1:1"),
               *colours = cod_json_get_string(cod_json_get(stream, "color_space"), "unknown");
    /* The mean of a constant rate may be off by how the ends are counted; that of a varying one is all there is. */
    const double rate = fraction(mean), base_rate = fraction(base);
    const bool constant = rate == 0 || (base_rate > 0 && base_rate / rate > 0.99 && base_rate / rate < 1.01);
    snprintf(clip->rate, sizeof clip->rate, "%s", constant ? base : mean);
    if (fraction(clip->rate) == 0)
        return cod_fail(COD_ERR_FORMAT, "it has no frame rate");
    clip->frames = number(stream, "nb_frames");
    if (clip->frames == 0)
        clip->frames = fraction(clip->rate) *
                       (number(stream, "duration") > 0 ? number(stream, "duration") : number(format, "duration"));
    clip->late_s = number(stream, "start_time") - number(format, "start_time");
    long over = 1, under = 1;
    if (sscanf(ratio, "%ld:%ld", &over, &under) == 2 && over > 0 && under > 0 && over != under)
        snprintf(clip->sample_ratio, sizeof clip->sample_ratio, "%ld/%ld", over, under);
    clip->assume_bt709 =
        strcmp(colours, "unknown") == 0 && cod_json_get_number(cod_json_get(stream, "height"), 0) >= HD_HEIGHT;
    return COD_OK;
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
    char file[4096 + 8], words[COD_CHILD_WORDS], *text = NULL;
    size_t bytes = 0;
    cod_child child;
    cod_json_value *document = NULL;
    snprintf(file, sizeof file, "file:%s", input);
    const char *const args[] = {
        "ffprobe",
        "-v",
        "error",
        "-select_streams",
        "V:0",
        "-show_entries",
        "stream=avg_frame_rate,r_frame_rate,nb_frames,duration,start_time,sample_aspect_ratio,color_space,height:"
        "format=duration,start_time",
        "-of",
        "json",
        "-i",
        file,
        NULL};
    COD_TRY(cod_child_start(&child, args, true));
    cod_status status = read_output(&child, &text, &bytes), end = cod_child_end(&child, words);
    if (status == COD_OK && end != COD_OK)
        status = end == COD_ERR_UNSUPPORTED
                     ? cod_fail_prefix(end, "videos need ffmpeg and ffprobe (Debian: apt-get install ffmpeg)")
                     : end;
    COD_THEN(status, cod_json_parse(text, bytes, &document));
    COD_THEN(status, clip_read(document, clip));
    cod_json_free(document);
    free(text);
    return status;
}
