/**
 * @file
 * What a video says of itself, by ffprobe.
 */
#ifndef COD_TOOLS_CLIP_H
#define COD_TOOLS_CLIP_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct cod_clip {
    char rate[48];         /**< frames a second, as a fraction; the mean where it varies */
    double frames;         /**< that there should be; 0 = unknown */
    double late_s;         /**< how much later than the earliest stream its pictures begin */
    char sample_ratio[48]; /**< of an upright pixel's width to its height, as ffmpeg's filter takes it; "" = square */
    bool assume_bt709;     /**< it is HD and does not say how colours are coded */
    bool transparent;      /**< it has an alpha channel */
    bool bright;           /**< HDR: its transfer function is PQ or HLG */
    char convert[128];     /**< options of ffmpeg's zscale that its colours need to become BT.709; "" = they are */
    char colours[128];     /**< what they are, for people: "bt2020, smpte2084" */
    size_t subtitles;      /**< streams of them */
    char sound[128];       /**< codecs of the sound: "aac, pcm_s16le"; "" = there is none */
} cod_clip;

/**
 * Asks ffprobe about the first stream of moving pictures, and what the sound is coded in.
 *
 * @return COD_ERR_UNSUPPORTED where ffprobe is not installed, COD_ERR_IO with its words when it cannot read the file,
 *         COD_ERR_FORMAT when there are no moving pictures
 */
COD_MUST_CHECK cod_status cod_clip_probe(const char *path, cod_clip *clip);

/** Reads what ffprobe wrote, in JSON. @param[out] clip  of known bounds, whatever the text */
COD_MUST_CHECK cod_status cod_clip_read(const char *text, size_t bytes, cod_clip *clip);

#endif
