/* What ffprobe says of a video, in JSON. */
#include "fuzz.h"

#include "tools/child.h"
#include "tools/clip.h"

#include <math.h>

fuzz_kind fuzz_kinds[] = {
    {"videos", 0}, {"videos of other pixels than square ones", 0}, {"videos of other colours", 0}, {NULL, 0}};

/* In place of processes. */
cod_status cod_child_start(cod_child *child, const char *const *args, bool reads)
{
    (void)child;
    (void)args;
    (void)reads;
    return COD_ERR_UNSUPPORTED;
}

cod_status cod_child_end(cod_child *child, char words[COD_CHILD_WORDS])
{
    (void)child;
    words[0] = '\0';
    return COD_ERR_UNSUPPORTED;
}

/** ffmpeg takes a part of its filters by these texts: no letter may be in them that begins another one. */
static int is_fraction(const char *text)
{
    const size_t over = strspn(text, "0123456789"),
                 under = text[over] == '/' ? strspn(text + over + 1, "0123456789") : 0;
    return over > 0 && text[0] != '0' && under > 0 && text[over + 1] != '0' && text[over + 1 + under] == '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    enum { MOST = 1000000000 };
    static const char conversion[] = ":tin=709:pin=2020:min=2020_ncl";
    cod_clip clip;
    if (!fuzz_taken(cod_clip_read((const char *)input, bytes, &clip)))
        return 0;
    fuzz_kinds[0].taken++;
    fuzz_kinds[1].taken += clip.sample_ratio[0] != '\0';
    fuzz_kinds[2].taken += clip.colours[0] != '\0';
    FUZZ_DEMAND(is_fraction(clip.rate));
    FUZZ_DEMAND(clip.sample_ratio[0] == '\0' || is_fraction(clip.sample_ratio));
    FUZZ_DEMAND(clip.frames >= 0 && clip.frames <= MOST && fabs(clip.late_s) <= 2.0 * MOST);
    FUZZ_DEMAND(strlen(clip.convert) <= sizeof conversion - 1 && (clip.convert[0] == '\0' || clip.colours[0] != '\0'));
    FUZZ_DEMAND(!clip.bright || clip.colours[0] != '\0');
    return 0;
}

int fuzz_write(const char *folder)
{
    /* ffprobe's own words about videos that ffmpeg made. */
    static const char turned[] =
        "{\n\"programs\": [\n],\n\"streams\": [\n{\n\"codec_name\": \"aac\", \"codec_type\": \"audio\", "
        "\"r_frame_rate\": \"0/0\", \"avg_frame_rate\": \"0/0\", \"start_time\": \"0.000000\", "
        "\"duration\": \"2.020136\", \"nb_frames\": \"88\", \"disposition\": {\"attached_pic\": 0}\n},\n"
        "{\n\"codec_name\": \"h264\", \"codec_type\": \"video\", \"sample_aspect_ratio\": \"16:11\", "
        "\"pix_fmt\": \"yuv420p\", \"height\": 576, \"color_space\": \"smpte170m\", \"color_transfer\": \"bt709\", "
        "\"color_primaries\": \"bt470bg\", \"r_frame_rate\": \"30000/1001\", \"avg_frame_rate\": \"30000/1001\", "
        "\"start_time\": \"0.100000\", \"duration\": \"2.002000\", \"nb_frames\": \"60\", "
        "\"disposition\": {\"attached_pic\": 0},\n\"side_data_list\": [{\"rotation\": -90}]\n}\n],\n"
        "\"format\": {\"start_time\": \"0.000000\", \"duration\": \"2.102000\"}\n}\n",
                      bright[] = "{\"streams\": [{\"codec_name\": \"mjpeg\", \"codec_type\": \"video\", "
                                 "\"disposition\": {\"attached_pic\": 1}}, {\"codec_name\": \"vp9\", "
                                 "\"codec_type\": \"video\", \"pix_fmt\": \"yuva420p10le\", \"height\": 2160, "
                                 "\"color_space\": \"bt2020nc\", \"color_transfer\": \"smpte2084\", "
                                 "\"color_primaries\": \"bt2020\", \"r_frame_rate\": \"60/1\", "
                                 "\"avg_frame_rate\": \"143/3\", \"tags\": {\"alpha_mode\": \"1\"}}], "
                                 "\"format\": {\"start_time\": \"-0.007000\", \"duration\": \"5.005000\"}}",
                      /* A rate that would be another filter, more frames than a clock can show, no finite time. */
        hostile[] = "{\"streams\": [{\"codec_type\": \"video\", \"r_frame_rate\": \"25/1,movie=x\", "
                    "\"avg_frame_rate\": \"25/1\", \"nb_frames\": \"1e300\", \"start_time\": \"nan\", "
                    "\"sample_aspect_ratio\": \"9223372036854775807:3\"}], \"format\": {\"start_time\": \"inf\"}}";
    return fuzz_write_file(folder, "turned", turned, sizeof turned - 1) |
           fuzz_write_file(folder, "bright", bright, sizeof bright - 1) |
           fuzz_write_file(folder, "hostile", hostile, sizeof hostile - 1);
}
