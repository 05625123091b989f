/**
 * @file
 * A drawing in SVG, used both in the page, where it takes the reader's light or dark colours, and alone, for a PNG.
 * Colours are the eight of Okabe and Ito ("Color Universal Design", 2008), darkened or lightened for contrast with the
 * background. A second mark (shape, dashes or hatching) always accompanies a colour.
 */
#ifndef COD_REPORT_DRAWING_INTERNAL_H
#define COD_REPORT_DRAWING_INTERNAL_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

/** Pixels: two fit side by side on a desktop, and one on a phone at three quarters. */
enum { COD_DRAWING_WIDTH = 480, COD_FONT_SIZE = 14 };

typedef struct cod_drawing {
    FILE *out; /**< the SVG's content, while it is drawn */
    char *text;
    size_t bytes;
    double height;
    int number; /**< number of the drawing in the page, for names that must be unique */
    const char *title;
} cod_drawing;

/** Begins a drawing with its title and, below it, what the y axis shows (NULL = nothing). @param title  borrowed */
COD_MUST_CHECK cod_status cod_drawing_open(cod_drawing *drawing, int number, const char *title, const char *subtitle);
/** Ends the drawing, which is `height` pixels tall. */
COD_MUST_CHECK cod_status cod_drawing_close(cod_drawing *drawing, double height);
void cod_drawing_clear(cod_drawing *drawing);
/** Where the content below the title begins. */
double cod_drawing_top(const char *subtitle);

/** Writes the <svg> element. `alone`: with its own light colours, on white. */
void cod_drawing_write(const cod_drawing *drawing, FILE *out, bool alone);
/**
 * Writes the style sheet's rules for drawings in a page; colours are variables that change with the reader's scheme.
 */
void cod_drawing_style(FILE *out);

/**
 * Writes text; `looks`: "text", "tick", "label" or "name"; `anchor`: "start", "middle" or "end"; of `most` characters
 * at most.
 */
void cod_drawing_text(cod_drawing *drawing, double x, double y, const char *looks, const char *anchor, size_t most,
                      const char *text);
/** Approximate width of this many characters, in pixels. */
double cod_drawing_text_width(size_t characters);
void cod_drawing_line(cod_drawing *drawing, double x1, double y1, double x2, double y2, const char *looks);
/** The mark of a style: shape and colour. */
void cod_drawing_mark(cod_drawing *drawing, double x, double y, double radius, size_t style);
/** Class and dashes of a style's line, as attributes. */
void cod_drawing_stroke(cod_drawing *drawing, size_t style);

typedef struct cod_legend_entry {
    const char *name;
    size_t style;
} cod_legend_entry;

/** Writes entries in rows below `y`: a line with its mark, or a filled box. @return the y below them */
double cod_drawing_legend(cod_drawing *drawing, double y, const cod_legend_entry *entries, size_t count, bool boxes);
/** Colour or hatching of a style's area, as attributes. */
void cod_drawing_fill(cod_drawing *drawing, size_t style);

/** A scale from values to pixels. */
typedef struct cod_axis {
    double low, high;  /**< values */
    double begin, end; /**< pixels */
    bool logarithmic;
} cod_axis;

double cod_axis_place(const cod_axis *axis, double value);

#endif
