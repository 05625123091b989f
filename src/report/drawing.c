#include "report/drawing_internal.h"

#include "report/markup.h"

#include <math.h>
#include <stdlib.h>

enum { COLOURS = 8, LINE_HEIGHT = 20, SAMPLE = 26, HATCHES = 5 };

/** A colour on white paper and on dark. */
static const struct {
    const char *name, *light, *dark;
} palette[] = {
    {"c0", "#0072b2", "#56b4e9"},   {"c1", "#d55e00", "#f0803c"},   {"c2", "#009e73", "#2cc295"},
    {"c3", "#b3568a", "#e396c2"},   {"c4", "#b07800", "#e9a820"},   {"c5", "#4a4a4a", "#dcdcdc"},
    {"c6", "#2b93cf", "#7f9cff"},   {"c7", "#7d7a12", "#f0e442"},   {"ink", "#1b1f24", "#e8eaed"},
    {"soft", "#59616b", "#a6adb7"}, {"grid", "#e3e6ea", "#2f353d"}, {"paper", "#ffffff", "#16191d"},
};

enum { PALETTE = sizeof palette / sizeof palette[0] };

/** A rule that gives a property its colour; `more` follows it. */
static void write_rule(FILE *out, const char *selector, const char *property, size_t colour, bool alone,
                       const char *more)
{
    fprintf(out, "%s{%s:", selector, property);
    if (alone)
        fprintf(out, "%s%s}\n", palette[colour].light, more);
    else
        fprintf(out, "var(--%s)%s}\n", palette[colour].name, more);
}

static void write_rules(FILE *out, bool alone)
{
    static const struct {
        char letter;
        const char *property, *more;
    } classes[] = {{'s', "stroke", ";fill:none;stroke-width:2;stroke-linejoin:round"},
                   {'m', "fill", ""},
                   {'b', "fill", ";fill-opacity:.16"}};
    for (size_t i = 0; i < COLOURS; i++)
        for (size_t k = 0; k < sizeof classes / sizeof classes[0]; k++) {
            char selector[16];
            snprintf(selector, sizeof selector, ".%c%zu", classes[k].letter, i);
            write_rule(out, selector, classes[k].property, i, alone, classes[k].more);
        }
    write_rule(out, "svg text", "fill", COLOURS, alone, "");
    write_rule(out, "svg text.tick,svg text.label", "fill", COLOURS + 1, alone, "");
    write_rule(out, "line.grid", "stroke", COLOURS + 2, alone, "");
    write_rule(out, "line.frame,line.guide", "stroke", COLOURS + 1, alone, "");
    write_rule(out, ".edge", "stroke", COLOURS + 3, alone, "");
    write_rule(out, ".ink", "fill", COLOURS, alone, "");
    fprintf(out,
            "svg text{font:%dpx %s}\nsvg text.title{font-weight:600;font-size:16px}\n"
            "line.guide{stroke-dasharray:4 4}\n",
            COD_FONT_SIZE, alone ? "'DejaVu Sans',sans-serif" : "system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif");
}

void cod_drawing_style(FILE *out)
{
    for (int dark = 0; dark < 2; dark++) {
        fprintf(out, "%s:root{", dark ? "@media (prefers-color-scheme:dark){" : "");
        for (size_t i = 0; i < PALETTE; i++)
            fprintf(out, "--%s:%s;", palette[i].name, dark ? palette[i].dark : palette[i].light);
        fprintf(out, "}%s\n", dark ? "}" : "");
    }
    write_rules(out, false);
}

double cod_drawing_top(const char *subtitle)
{
    return subtitle != NULL ? 54 : 34;
}

/** Hatching that distinguishes areas in addition to their colours. Ids must be unique in the page, hence the number. */
static void define_hatches(cod_drawing *drawing)
{
    static const char *const strokes[HATCHES] = {"", "M0 8L8 0M-2 2L2 -2M6 10L10 6", "M0 4H8", "M0 0L8 8M0 8L8 0",
                                                 "M4 0V8"};
    fputs("<defs>", drawing->out);
    for (int i = 1; i < HATCHES; i++)
        fprintf(drawing->out,
                "<pattern id=\"h%d-%d\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect width=\"8\" "
                "height=\"8\" class=\"m%d\"/><path class=\"edge\" stroke-width=\"1.4\" fill=\"none\" "
                "d=\"%s\"/></pattern>",
                drawing->number, i, i, strokes[i]);
    fputs("</defs>\n", drawing->out);
}

cod_status cod_drawing_open(cod_drawing *drawing, int number, const char *title, const char *subtitle)
{
    *drawing = (cod_drawing){.number = number, .title = title};
    drawing->out = open_memstream(&drawing->text, &drawing->bytes);
    COD_REQUIRE_MEMORY(drawing->out);
    define_hatches(drawing);
    cod_drawing_text(drawing, 4, 18, "title", "start", COD_MARKUP_ALL, title);
    if (subtitle != NULL)
        cod_drawing_text(drawing, 4, 40, "label", "start", 58, subtitle);
    return COD_OK;
}

cod_status cod_drawing_close(cod_drawing *drawing, double height)
{
    const bool failed = ferror(drawing->out) != 0, unfinished = fclose(drawing->out) != 0;
    drawing->out = NULL;
    drawing->height = height;
    return failed || unfinished ? cod_fail(COD_ERR_MEMORY, "no memory for a drawing") : COD_OK;
}

void cod_drawing_clear(cod_drawing *drawing)
{
    if (drawing->out != NULL)
        fclose(drawing->out);
    free(drawing->text);
    *drawing = (cod_drawing){0};
}

void cod_drawing_write(const cod_drawing *drawing, FILE *out, bool alone)
{
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" ", COD_DRAWING_WIDTH,
            drawing->height);
    if (alone)
        fprintf(out, "width=\"%d\" height=\"%.0f\">\n<style>", COD_DRAWING_WIDTH, drawing->height);
    else
        fputs("role=\"img\" aria-label=\"", out);
    if (alone) {
        write_rules(out, true);
        fputs("</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", out);
    } else {
        cod_markup(out, drawing->title);
        fputs("\">\n", out);
    }
    fwrite(drawing->text, 1, drawing->bytes, out);
    fputs("</svg>\n", out);
}

void cod_drawing_text(cod_drawing *drawing, double x, double y, const char *looks, const char *anchor, size_t most,
                      const char *text)
{
    fprintf(drawing->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", looks, x, y, anchor);
    if (most != COD_MARKUP_ALL && cod_markup_length(text) > most) {
        fputs("<title>", drawing->out);
        cod_markup(drawing->out, text);
        fputs("</title>", drawing->out);
    }
    cod_markup_part(drawing->out, text, most);
    fputs("</text>\n", drawing->out);
}

double cod_drawing_text_width(size_t characters)
{
    return 0.6 * COD_FONT_SIZE * (double)characters;
}

void cod_drawing_line(cod_drawing *drawing, double x1, double y1, double x2, double y2, const char *looks)
{
    fprintf(drawing->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", looks, x1, y1, x2,
            y2);
}

void cod_drawing_mark(cod_drawing *drawing, double x, double y, double radius, size_t style)
{
    /*
     * Circle, square, triangle, diamond, triangle down, plus, six-pointed star, hourglass; within a unit circle or so.
     */
    static const char *const shapes[COLOURS] = {
        "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z",
        "M-.9 -.9H.9V.9H-.9Z",
        "M0 -1.15L1.1 .85H-1.1Z",
        "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
        "M0 1.15L1.1 -.85H-1.1Z",
        "M-.38 -1.2H.38V-.38H1.2V.38H.38V1.2H-.38V.38H-1.2V-.38H-.38Z",
        "M0 -1.3L.38 -.65L1.13 -.65L.75 0L1.13 .65L.38 .65L0 1.3L-.38 .65L-1.13 .65L-.75 0L-1.13 -.65L-.38 -.65Z",
        "M-1 -1H1L-1 1H1Z"};
    const size_t colour = style % COLOURS, shape = (style + style / COLOURS) % COLOURS;
    fprintf(drawing->out,
            "<path class=\"m%zu\" transform=\"translate(%.1f %.1f) scale(%.1f)\" stroke-width=\".2\" d=\"%s\"/>\n",
            colour, x, y, radius, shapes[shape]);
}

void cod_drawing_stroke(cod_drawing *drawing, size_t style)
{
    static const char *const dashes[] = {"", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
                                         " stroke-dasharray=\"9 3 2 3\""};
    fprintf(drawing->out, "class=\"s%zu\"%s", style % COLOURS, dashes[style / COLOURS % 4]);
}

void cod_drawing_fill(cod_drawing *drawing, size_t style)
{
    if (style % HATCHES == 0)
        fprintf(drawing->out, "class=\"m%zu\"", style % COLOURS);
    else
        fprintf(drawing->out, "fill=\"url(#h%d-%zu)\"", drawing->number, style % HATCHES);
}

double cod_drawing_legend(cod_drawing *drawing, double y, const cod_legend_entry *entries, size_t count, bool boxes)
{
    enum { LONGEST = 40, GAP = 16 };
    double x = 4;
    for (size_t i = 0; i < count; i++) {
        const size_t length = cod_markup_length(entries[i].name);
        const double width = SAMPLE + 6 + cod_drawing_text_width(length < LONGEST ? length : LONGEST);
        if (x > 4 && x + width > COD_DRAWING_WIDTH - 4) {
            x = 4;
            y += LINE_HEIGHT;
        }
        if (boxes) {
            fprintf(drawing->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"12\" ", x, y + 4, SAMPLE);
            cod_drawing_fill(drawing, entries[i].style);
            fputs("/>\n", drawing->out);
        } else {
            fprintf(drawing->out, "<path d=\"M%.1f %.1fh%d\" ", x, y + 10, SAMPLE);
            cod_drawing_stroke(drawing, entries[i].style);
            fputs("/>\n", drawing->out);
            cod_drawing_mark(drawing, x + SAMPLE / 2, y + 10, 4.5, entries[i].style);
        }
        cod_drawing_text(drawing, x + SAMPLE + 6, y + 14.5, "name", "start", LONGEST, entries[i].name);
        x += width + GAP;
    }
    return count > 0 ? y + LINE_HEIGHT : y;
}

double cod_axis_place(const cod_axis *axis, double value)
{
    const double low = axis->logarithmic ? log(axis->low) : axis->low,
                 high = axis->logarithmic ? log(axis->high) : axis->high, at = axis->logarithmic ? log(value) : value;
    const double share = high > low ? (at - low) / (high - low) : 0.5;
    /* Far outside is still a number that renderers take. */
    return axis->begin + fmax(-20, fmin(20, share)) * (axis->end - axis->begin);
}
