#include "data/image_internal.h"
#include "data/profile_internal.h"

#include "core/file_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROBE_BYTES = 256 * 1024, FILE_LIMIT = 0x7FFFFFFF };

/** @param[out] bytes  NULL before; free() it, also after a failure @param[out] count  0 before */
static cod_status read_open(int file, size_t limit, uint8_t **bytes, size_t *count)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return cod_fail(COD_ERR_IO, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "is not a regular file");
    if (info.st_size > FILE_LIMIT)
        return cod_fail(COD_ERR_UNSUPPORTED, "the file is larger than 2 GiB");
    const size_t wanted = (size_t)info.st_size < limit ? (size_t)info.st_size : limit;
    *bytes = malloc(wanted ? wanted : 1);
    if (*bytes == NULL)
        return cod_fail(COD_ERR_MEMORY, "out of memory: %zu bytes wanted", wanted);
    while (*count < wanted) {
        const ssize_t got = read(file, *bytes + *count, wanted - *count);
        if (got > 0)
            *count += (size_t)got;
        else if (got == 0)
            break;
        else if (errno != EINTR)
            return cod_fail(COD_ERR_IO, "cannot read: %s", strerror(errno));
    }
    return COD_OK;
}

/** Reads a whole file or its first `limit` bytes; *bytes is freed by the caller with free(). */
static cod_status read_file(const char *path, size_t limit, uint8_t **bytes, size_t *count)
{
    *bytes = NULL;
    *count = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return cod_fail(COD_ERR_IO, "cannot open: %s", strerror(errno));
    const cod_status status = read_open(file, limit, bytes, count);
    close(file);
    if (status != COD_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/** @return NULL = none of ours; then *foreign is the name of a format that is known, or NULL */
static cod_image_decoder detect(const uint8_t *bytes, size_t count, const char **foreign)
{
    static const struct {
        const char *name, *magic;
        size_t offset, length;
        cod_image_decoder decode;
    } known[] = {
        {"PNG", "\x89PNG\r\n\x1a\n", 0, 8, cod_png_decode},
        {"JPEG", "\xff\xd8\xff", 0, 3, cod_jpeg_decode},
        {"WebP", "WEBP", 8, 4, cod_webp_decode},
        {"TIFF", "II*\0", 0, 4, cod_tiff_decode},
        {"TIFF", "MM\0*", 0, 4, cod_tiff_decode},
        {"TIFF", "II+\0", 0, 4, cod_tiff_decode},
        {"TIFF", "MM\0+", 0, 4, cod_tiff_decode},
        {"BMP", "BM", 0, 2, cod_bmp_decode},
        {"GIF", "GIF8", 0, 4, NULL},
        {"JPEG 2000", "jP  ", 4, 4, NULL},
        {"HEIF or AVIF", "ftyp", 4, 4, NULL},
        {"JPEG XL", "\xff\x0a", 0, 2, NULL},
    };
    *foreign = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t end = known[i].offset + known[i].length;
        if (count >= end && memcmp(bytes + known[i].offset, known[i].magic, known[i].length) == 0) {
            *foreign = known[i].name;
            return known[i].decode;
        }
    }
    return NULL;
}

static cod_status decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    const char *foreign;
    const cod_image_decoder decoder = detect(bytes, count, &foreign);
    if (decoder != NULL)
        return decoder(bytes, count, header_only, image);
    const char *name;
    const cod_file_kind kind = cod_file_kind_of(bytes, count, &name);
    if (kind != COD_FILE_UNKNOWN && kind != COD_FILE_EMPTY && kind != COD_FILE_PICTURE)
        return cod_fail(COD_ERR_FORMAT, "%s, not a picture%s%s", name, *cod_file_kind_advice(kind) != '\0' ? ": " : "",
                        cod_file_kind_advice(kind));
    if (foreign != NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "%s is not supported; convert it to PNG, JPEG or WebP", foreign);
    return cod_fail(COD_ERR_FORMAT,
                    count == 0 ? "the file is empty" : "not a picture: none of PNG, JPEG, WebP, TIFF and BMP");
}

cod_status cod_image_decode(const void *bytes, size_t count, const char *name, cod_image *image)
{
    *image = (cod_image){0};
    const cod_status status = decode(bytes, count, false, image);
    if (status == COD_OK)
        return COD_OK;
    cod_image_clear(image);
    return cod_fail_prefix(status, "%s", name);
}

cod_status cod_image_read(const char *path, cod_image *image)
{
    *image = (cod_image){0};
    uint8_t *bytes;
    size_t count;
    const cod_status read = read_file(path, FILE_LIMIT, &bytes, &count);
    if (read != COD_OK)
        return cod_fail_prefix(read, "%s", path);
    const cod_status status = cod_image_decode(bytes, count, path, image);
    free(bytes);
    return status;
}

cod_status cod_image_probe(const char *path, int64_t *width, int64_t *height)
{
    cod_image image = {0};
    cod_status status = COD_OK;
    /*
     * Long comments, profiles and previews may push a header far back, and a TIFF may have its own at the end: then all
     * is read.
     */
    static const size_t limits[] = {PROBE_BYTES, FILE_LIMIT};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *bytes;
        size_t count;
        status = read_file(path, limits[i], &bytes, &count);
        if (status == COD_OK) {
            status = decode(bytes, count, true, &image);
            free(bytes);
        }
        if (status == COD_OK || count < limits[i])
            break;
    }
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s", path);
    *width = image.width;
    *height = image.height;
    return COD_OK;
}

void cod_image_libraries(char *text, size_t bytes)
{
    char webp[48], tiff[48], lcms[48];
    cod_webp_version(webp, sizeof webp);
    cod_tiff_version(tiff, sizeof tiff);
    cod_profile_library(lcms, sizeof lcms);
    snprintf(text, bytes, "libpng %s, %s, %s, %s, %s", cod_png_version(), cod_jpeg_library(), webp, tiff, lcms);
}
