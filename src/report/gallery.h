/**
 * @file
 * A gallery: one self-contained page with the results of several models on the same pictures, to compare by eye and by
 * figures.
 */
#ifndef COD_REPORT_GALLERY_H
#define COD_REPORT_GALLERY_H

#include "data/metrics.h"

#include <stdio.h>

/** A picture in the version of one model; the last view is the truth or, where there is none, the picture itself. */
typedef struct cod_gallery_view {
    const char *name;
    cod_image image;     /**< 8-bit RGB */
    cod_quality quality; /**< NaN = not known, as that of the last view; means, in the table */
    double niqe;         /**< NaN = not computed */
} cod_gallery_view;

/** Content of a section. All views have the same size. */
typedef struct cod_gallery_picture {
    const char *title;
    const cod_gallery_view *views; /**< [view_count] */
    size_t view_count;
    int64_t left, top, width, height; /**< of the part that is shown enlarged */
} cod_gallery_picture;

/** Content above the pictures. */
typedef struct cod_gallery_head {
    const char *title, *about;
    const cod_gallery_view *means; /**< [mean_count], the last view's last; images are ignored */
    size_t mean_count;
    bool with_truth, with_niqe;
} cod_gallery_head;

/** Writes the page from its beginning to the first picture, a picture's section, and the end. */
void cod_gallery_write_head(FILE *out, const cod_gallery_head *head);
COD_MUST_CHECK cod_status cod_gallery_write_picture(FILE *out, const cod_gallery_picture *picture);
void cod_gallery_write_end(FILE *out);

#endif
