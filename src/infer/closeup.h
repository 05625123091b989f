/**
 * @file
 * Close-ups: the liveliest part of a picture as a page shows it, small, by bicubic interpolation and by models, beside
 * the truth where there is one. They are PNG files, and a list in JSON that module `report` reads.
 */
#ifndef COD_INFER_CLOSEUP_H
#define COD_INFER_CLOSEUP_H

#include "data/image.h"
#include "infer/upscaler.h"
#include "io/json.h"

#include <stddef.h>

typedef struct cod_closeup {
    cod_image low;                    /**< with a margin */
    int64_t left, top, width, height; /**< of what is shown, within `low` */
    cod_image truth;                  /**< of what is shown; without pixels: not known */
    int scale;
} cod_closeup;

enum { COD_CLOSEUP_SIDE = 24 /**< low-resolution pixels */, COD_CLOSEUPS = 3 /**< of held-out data on a page */ };

/**
 * Cuts out the liveliest part.
 *
 * @param low    8-bit RGB
 * @param truth  the same picture `scale` times as large; NULL = not known
 * @param side   of the part, low-resolution pixels, at most
 * @param[out] out  new; cod_closeup_clear(), also after a failure
 */
COD_MUST_CHECK cod_status cod_closeup_cut(const cod_image *low, const cod_image *truth, int scale, int64_t side,
                                          cod_closeup *out);
void cod_closeup_clear(cod_closeup *closeup);

/** The versions of a close-up on their way to files. */
typedef struct cod_closeup_list {
    const cod_closeup *closeup; /**< this and the names: borrowed */
    const char *folder, *name;
    cod_json *json;
    size_t models;
} cod_closeup_list;

/**
 * Opens an object of JSON with `title`, `size` and `images`: `label`, `png`, and `psnr` over all channels where the
 * truth is known. Writes the first two versions, FOLDER/NAME-low.png and FOLDER/NAME-bicubic.png.
 *
 * @param name  relative to `folder`, such as "crops/0"; its own folder is there
 */
COD_MUST_CHECK cod_status cod_closeup_begin(const cod_closeup *closeup, const char *title, const char *folder,
                                            const char *name, cod_json *json, cod_closeup_list *list);
/** Writes what a model makes of it, FOLDER/NAME-0.png, -1.png, … */
COD_MUST_CHECK cod_status cod_closeup_add(cod_closeup_list *list, cod_upscaler *upscaler, const char *label);
/** Writes FOLDER/NAME-truth.png, if the truth is known, and closes the object. */
COD_MUST_CHECK cod_status cod_closeup_end(cod_closeup_list *list);

/** All of it for one model. */
COD_MUST_CHECK cod_status cod_closeup_show(const cod_image *low, const cod_image *truth, cod_upscaler *upscaler,
                                           const char *label, const char *title, const char *folder, const char *name,
                                           cod_json *json);

#endif
