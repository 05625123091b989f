/* The same crops from every arm, side by side, embedded in the page. */
#include "report/report_internal.h"

#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PNG_BYTES = 1 << 24,
    MOST_SIDE = 4096,
    WIDE = 200,
    NARROW = 160
}; /* pixels that a crop should take on a desktop and on a phone */

static unsigned long big_endian(const unsigned char *data)
{
    return (unsigned long)data[0] << 24 | (unsigned long)data[1] << 16 | (unsigned long)data[2] << 8 | data[3];
}

/** Size from the header of a PNG (ISO/IEC 15948, 11.2.2). */
static cod_status read_size(const unsigned char *data, size_t bytes, unsigned long *width, unsigned long *height)
{
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    if (bytes < 33 || memcmp(data, signature, sizeof signature) != 0 || memcmp(data + 12, "IHDR", 4) != 0)
        return cod_fail(COD_ERR_FORMAT, "no PNG");
    *width = big_endian(data + 16);
    *height = big_endian(data + 20);
    if (*width == 0 || *height == 0 || *width > MOST_SIDE || *height > MOST_SIDE)
        return cod_fail(COD_ERR_FORMAT, "%lu x %lu pixels", *width, *height);
    return COD_OK;
}

/** Pictures come from the comparison's own folder only. */
static bool is_inside(const char *name)
{
    return name[0] != '\0' && name[0] != '/' && strstr(name, "..") == NULL;
}

static unsigned long whole_scale(unsigned long pixels, unsigned long wanted)
{
    return pixels < wanted ? wanted / pixels : 1;
}

/** The size at which all versions of a crop are shown, before they are scaled. Zeroed = each at its own. */
typedef struct shown_size {
    unsigned long width, height;
} shown_size;

static cod_status embed(cod_report *report, const char *name, const char *label, shown_size shown)
{
    void *data = NULL;
    size_t bytes = 0;
    unsigned long width = 0, height = 0;
    if (!is_inside(name))
        return cod_fail(COD_ERR_FORMAT, "'%s' lies outside the folder", name);
    const char *path = cod_path_join(report->arena, report->folder, name);
    COD_REQUIRE_MEMORY(path);
    COD_TRY(cod_file_read(path, MAX_PNG_BYTES, &data, &bytes));
    const cod_status status = read_size(data, bytes, &width, &height);
    if (status == COD_OK) {
        if (shown.width == 0)
            shown = (shown_size){width, height};
        fprintf(
            report->out, "<img style=\"--w:%lu;--h:%lu;--wide:%lu;--narrow:%lu\" width=\"%lu\" height=\"%lu\" alt=\"",
            shown.width, shown.height, whole_scale(shown.width, WIDE), whole_scale(shown.width, NARROW), width, height);
        cod_markup(report->out, label);
        fputs("\" src=\"data:image/png;base64,", report->out);
        cod_markup_base64(report->out, data, bytes);
        fputs("\">", report->out);
    }
    free(data);
    return status;
}

static void embed_or_say(cod_report *report, const char *name, const char *label, shown_size shown)
{
    if (embed(report, name, label, shown) == COD_OK)
        return;
    fputs("<p class=\"warning\">The picture is missing: ", report->out);
    cod_markup(report->out, cod_error_message());
    fputs("</p>", report->out);
}

void cod_report_embed(cod_report *report, const char *name, const char *label)
{
    embed_or_say(report, name, label, (shown_size){0});
}

/** The "size" of a crop, to which its small version is enlarged. */
static shown_size read_shown_size(const cod_json_value *crop)
{
    const cod_json_value *width = cod_json_first(cod_json_get(crop, "size"));
    const double w = cod_json_get_number(width, 0), h = cod_json_get_number(cod_json_next(width), 0);
    const bool usable = w >= 1 && w <= MOST_SIDE && h >= 1 && h <= MOST_SIDE;
    return usable ? (shown_size){(unsigned long)w, (unsigned long)h} : (shown_size){0};
}

static void write_image(cod_report *report, const cod_json_value *image, shown_size shown)
{
    const char *label = cod_json_get_string(cod_json_get(image, "label"), "");
    const double psnr = cod_json_get_number(cod_json_get(image, "psnr"), NAN);
    fputs("<figure class=\"crop\">", report->out);
    embed_or_say(report, cod_json_get_string(cod_json_get(image, "png"), ""), label, shown);
    fputs("<figcaption>", report->out);
    cod_markup(report->out, label);
    if (!isnan(psnr))
        fprintf(report->out, "<br>%s dB", cod_number_text(psnr, 2).text);
    fputs("</figcaption></figure>\n", report->out);
}

void cod_report_write_crops(cod_report *report, const cod_json_value *crops, const char *id, const char *heading,
                            const char *note)
{
    if (cod_json_count(crops) == 0)
        return;
    fprintf(report->out, "<section id=\"%s\">\n<h2>%s</h2>\n<p class=\"note\">%s</p>\n", id, heading, note);
    for (const cod_json_value *crop = cod_json_first(crops); crop != NULL; crop = cod_json_next(crop)) {
        fputs("<h3>", report->out);
        cod_markup(report->out, cod_json_get_string(cod_json_get(crop, "title"), "(no title)"));
        fputs("</h3>\n<div class=\"crops\">\n", report->out);
        const cod_json_value *images = cod_json_get(crop, "images");
        for (const cod_json_value *image = cod_json_first(images); image != NULL; image = cod_json_next(image))
            write_image(report, image, read_shown_size(crop));
        fputs("</div>\n", report->out);
    }
    fputs("</section>\n", report->out);
}

cod_status cod_report_crops(cod_report *report)
{
    cod_report_write_crops(report, cod_json_get(report->data->document, "crops"), "crops", "Pictures",
                           "The same crop from each arm, each pixel shown as a square; PSNR of the crop, higher is "
                           "closer to the truth.");
    return COD_OK;
}

cod_status cod_report_photographs(cod_report *report)
{
    void *text = NULL;
    size_t bytes = 0;
    cod_json_value *document = NULL;
    const char *path = cod_path_join(report->arena, report->folder, "photographs.json");
    COD_REQUIRE_MEMORY(path);
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(cod_file_read(path, MAX_PNG_BYTES, &text, &bytes));
    const cod_status status = cod_json_parse(text, bytes, &document);
    free(text);
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s", path);
    cod_report_write_crops(
        report, cod_json_get(document, "crops"), "photographs", "Photographs without truth",
        "The liveliest part of photographs, enlarged as they are. There is no truth to compare with, "
        "so there is no PSNR and no SSIM: compare by eye. <code>codistill gallery --low</code> shows "
        "whole photographs, and judges them by NIQE if it is given a model.");
    cod_json_free(document);
    return COD_OK;
}
