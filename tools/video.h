/**
 * @file
 * Videos through ffmpeg: one process decodes, this one makes larger pictures of the frames, another process encodes.
 * Nothing but the result is written to the disk.
 */
#ifndef COD_TOOLS_VIDEO_H
#define COD_TOOLS_VIDEO_H

#include "data/image.h"

#include <stdbool.h>

enum { COD_VIDEO_CRF = 18, COD_VIDEO_CRF_MOST = 51 };

/** Whether a path is called as a video is. */
bool cod_video_is_called(const char *path);
/** Whether videos can be written under a name: .mp4, .m4v, .mov, .mkv or .webm. */
bool cod_video_is_writable(const char *path);

/** Makes a frame of the result; all must be of one size. @param[out] out  new, 8 bits RGB; cod_image_clear() */
typedef cod_status (*cod_video_map)(void *context, const cod_image *frame, cod_image *out);

typedef struct cod_video_job {
    const char *input, *output;
    int crf;       /**< constant rate factor of the encoder: 0 = lossless, COD_VIDEO_CRF_MOST = worst */
    bool progress; /**< a line on standard error that changes: frames, rate, time left */
    cod_video_map map;
    void *context; /**< of `map` */
} cod_video_job;

/** What was done. */
typedef struct cod_video_result {
    size_t frames;
    int64_t width, height, out_width, out_height;
    char rate[48]; /**< frames a second, as a fraction */
    double seconds;
} cod_video_result;

/**
 * Maps a video frame by frame: in order, at its frame rate, with its sound copied. Frames are 8-bit RGB, turned
 * upright; of a video with a varying rate they are taken at its mean rate. An odd last row or column of the result is
 * left out, as H.264 has it. `output` is replaced when all is done, and left as it is otherwise.
 *
 * @return COD_ERR_UNSUPPORTED where ffmpeg or ffprobe is not installed; COD_ERR_IO with ffmpeg's own words when it
 *         fails or is killed, and when this process was asked to end by SIGINT or SIGTERM; what `map` returns
 */
COD_MUST_CHECK cod_status cod_video_run(const cod_video_job *job, cod_video_result *result);

#endif
