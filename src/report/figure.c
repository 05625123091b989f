/* Writes plots into the page and into PNG files, and names plots of several link rates. */
#include "report/report_internal.h"

#include "io/file.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *cod_report_text(const cod_report *report, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = length < 0 ? NULL : cod_arena_alloc(report->arena, (size_t)length + 1);
    if (text == NULL)
        return "";
    va_start(args, fmt);
    vsnprintf(text, (size_t)length + 1, fmt, args);
    va_end(args);
    return text;
}

const char *cod_report_rate_label(const cod_report *report, size_t rate)
{
    const cod_report_rate *r = &report->data->rates[rate];
    return isnan(r->bits_per_second) ? r->name : cod_report_text(report, "%s", cod_rate_text(r->bits_per_second).text);
}

const char *cod_report_rate_suffix(const cod_report *report, size_t rate)
{
    return report->data->rate_count > 1 ? cod_report_text(report, ", %s", cod_report_rate_label(report, rate)) : "";
}

const char *cod_report_file_name(const cod_report *report, const char *base, size_t rate)
{
    if (rate == 0)
        return base;
    char name[40];
    size_t length = 0;
    for (const char *c = report->data->rates[rate].name; *c != '\0' && length + 1 < sizeof name; c++)
        if (isalnum((unsigned char)*c))
            name[length++] = *c;
    name[length] = '\0';
    /* Names that are nothing but signs, or alike without them, keep apart by their number. */
    bool alone = length > 0;
    for (size_t i = 0; i < report->data->rate_count; i++)
        alone = alone && (i == rate || strcmp(report->data->rates[i].name, name) != 0);
    return alone && strcmp(report->data->rates[rate].name, name) == 0
               ? cod_report_text(report, "%s-%s", base, name)
               : cod_report_text(report, "%s-rate%zu", base, rate);
}

/** Text of the page around the name of a plot's file. */
#define FILE_BEFORE "<span class=\"file\">"
#define FILE_AFTER  ".png</span>"

static cod_status write_png(const cod_report *report, const cod_drawing *drawing, const char *file)
{
    char *svg = NULL;
    size_t bytes = 0;
    const char *path = cod_path_join(report->arena, report->folder, cod_report_text(report, "%s.png", file));
    FILE *out = path != NULL ? open_memstream(&svg, &bytes) : NULL;
    COD_REQUIRE_MEMORY(out);
    cod_drawing_write(drawing, out, true);
    const bool failed = fclose(out) != 0;
    const cod_status status =
        failed ? cod_fail(COD_ERR_MEMORY, "no memory for a plot") : cod_report_png_write(svg, bytes, path);
    free(svg);
    return status;
}

static cod_status write_figure(cod_report *report, const cod_drawing *drawing, const char *file, const char *caption)
{
    fputs("<figure>\n", report->out);
    cod_drawing_write(drawing, report->out, false);
    fprintf(report->out, "<figcaption>%s%s", caption, caption[0] != '\0' ? " " : "");
    const bool with_png = cod_report_png_available() && report->run == NULL;
    if (with_png)
        fprintf(report->out, FILE_BEFORE "%s" FILE_AFTER, file);
    fputs("</figcaption>\n</figure>\n", report->out);
    return with_png ? write_png(report, drawing, file) : COD_OK;
}

/** @param status  what drawing it came to @param drawing  taken, also after a failure */
static cod_status add(cod_report *report, cod_status status, cod_drawing *drawing, const char *file,
                      const char *caption)
{
    COD_THEN(status, write_figure(report, drawing, file, caption));
    cod_drawing_clear(drawing);
    return status;
}

cod_status cod_report_add_line_plot(cod_report *report, const cod_line_plot *plot, const char *file,
                                    const char *caption)
{
    cod_drawing drawing;
    return add(report, cod_line_plot_draw(plot, report->drawings++, &drawing), &drawing, file, caption);
}

cod_status cod_report_add_mark_plot(cod_report *report, const cod_mark_plot *plot, const char *file,
                                    const char *caption)
{
    cod_drawing drawing;
    return add(report, cod_mark_plot_draw(plot, report->drawings++, &drawing), &drawing, file, caption);
}

cod_status cod_report_add_bar_plot(cod_report *report, const cod_bar_plot *plot, const char *file, const char *caption)
{
    cod_drawing drawing;
    return add(report, cod_bar_plot_draw(plot, report->drawings++, &drawing), &drawing, file, caption);
}

cod_status cod_report_remove_stale(const cod_report *report, const char *earlier, const char *page)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    while ((earlier = strstr(earlier, FILE_BEFORE)) != NULL) {
        const char *name = earlier + strlen(FILE_BEFORE);
        const int length = (int)strspn(name, plain);
        earlier = name + length;
        const char *told = cod_report_text(report, FILE_BEFORE "%.*s" FILE_AFTER, length, name);
        if (length == 0 || strncmp(earlier, FILE_AFTER, strlen(FILE_AFTER)) != 0 || strstr(page, told) != NULL)
            continue;
        const char *path =
            cod_path_join(report->arena, report->folder, cod_report_text(report, "%.*s.png", length, name));
        COD_REQUIRE_MEMORY(path);
        COD_TRY(cod_file_remove(path));
    }
    return COD_OK;
}
