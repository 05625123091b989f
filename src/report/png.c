/* Plots as PNG files, by librsvg and cairo where the build has them. */
#include "report/report.h"
#include "report/report_internal.h"

#include "io/file.h"

#if COD_HAVE_RSVG

#include <librsvg/rsvg.h>

enum { SCALE = 2 };

static cairo_status_t write_some(void *writer, const unsigned char *data, unsigned int bytes)
{
    return cod_file_writer_write(writer, data, bytes) == COD_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static cod_status save(cairo_surface_t *surface, const char *path)
{
    cod_file_writer *writer;
    COD_TRY(cod_file_writer_create(path, &writer));
    const cairo_status_t state = cairo_surface_write_to_png_stream(surface, write_some, writer);
    if (state == CAIRO_STATUS_SUCCESS)
        return cod_file_writer_commit(writer);
    cod_file_writer_abort(writer);
    return state == CAIRO_STATUS_WRITE_ERROR ? COD_ERR_IO
                                             : cod_fail(COD_ERR_MEMORY, "%s: %s", path, cairo_status_to_string(state));
}

static cod_status render(RsvgHandle *handle, const char *path)
{
    gdouble width = 0, height = 0;
    GError *error = NULL;
    if (!rsvg_handle_get_intrinsic_size_in_pixels(handle, &width, &height))
        return cod_fail(COD_ERR_FORMAT, "%s: the plot has no size", path);
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(SCALE * width), (int)(SCALE * height));
    cairo_t *canvas = cairo_create(surface);
    const RsvgRectangle all = {0, 0, SCALE * width, SCALE * height};
    cod_status status = COD_OK;
    if (!rsvg_handle_render_document(handle, canvas, &all, &error)) {
        status = cod_fail(COD_ERR_FORMAT, "%s: %s", path, error->message);
        g_error_free(error);
    }
    cairo_destroy(canvas);
    cairo_surface_flush(surface);
    COD_THEN(status, save(surface, path));
    cairo_surface_destroy(surface);
    return status;
}

bool cod_report_png_available(void)
{
    return true;
}

cod_status cod_report_png_write(const char *svg, size_t bytes, const char *path)
{
    GError *error = NULL;
    RsvgHandle *handle = rsvg_handle_new_from_data((const guint8 *)svg, bytes, &error);
    if (handle == NULL) {
        const cod_status status = cod_fail(COD_ERR_FORMAT, "%s: %s", path, error->message);
        g_error_free(error);
        return status;
    }
    const cod_status status = render(handle, path);
    g_object_unref(handle);
    return status;
}

void cod_report_png_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "librsvg %u.%u.%u", rsvg_major_version, rsvg_minor_version, rsvg_micro_version);
}

#else

bool cod_report_png_available(void)
{
    return false;
}

cod_status cod_report_png_write(const char *svg, size_t bytes, const char *path)
{
    (void)svg;
    (void)bytes;
    return cod_fail(COD_ERR_UNSUPPORTED, "%s: this build has no librsvg", path);
}

void cod_report_png_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "no librsvg");
}

#endif
