#include "data/notes_internal.h"

#include "data/exif_internal.h"
#include "data/profile_internal.h"

#include <stdlib.h>
#include <string.h>

struct cod_image_notes *cod_image_notes_of(cod_image *image)
{
    if (image->notes == NULL)
        image->notes = calloc(1, sizeof *image->notes);
    return image->notes;
}

static cod_status keep(uint8_t **kept, size_t *kept_bytes, const void *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes);
    COD_REQUIRE_MEMORY(copy);
    memcpy(copy, data, bytes);
    free(*kept);
    *kept = copy;
    *kept_bytes = bytes;
    return COD_OK;
}

cod_status cod_image_keep_profile(cod_image *image, const void *profile, size_t bytes)
{
    struct cod_image_notes *notes = cod_image_notes_of(image);
    COD_REQUIRE_MEMORY(notes);
    const cod_profile_space space = cod_profile_space_of(profile, bytes);
    if (space == COD_PROFILE_RGB)
        return keep(&notes->profile, &notes->profile_bytes, profile, bytes);
    if (space != COD_PROFILE_GRAY)
        return COD_OK;
    free(notes->profile);
    notes->profile = NULL;
    return cod_profile_from_gray(profile, bytes, (void **)&notes->profile, &notes->profile_bytes);
}

cod_status cod_image_keep_exif(cod_image *image, const uint8_t *tiff, size_t bytes)
{
    struct cod_image_notes *notes = cod_image_notes_of(image);
    COD_REQUIRE_MEMORY(notes);
    if (bytes < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return COD_OK;
    COD_TRY(keep(&notes->exif, &notes->exif_bytes, tiff, bytes));
    cod_exif_drop_thumbnail(notes->exif, notes->exif_bytes);
    if (notes->dpi_x == 0) {
        double dpi_x, dpi_y;
        cod_exif_dpi(tiff, bytes, &dpi_x, &dpi_y);
        COD_TRY(cod_image_keep_dpi(image, dpi_x, dpi_y));
    }
    cod_exif_adapt(notes->exif, notes->exif_bytes, image);
    return COD_OK;
}

/** Whether a resolution is one that all formats can hold. */
static bool is_dpi(double dpi)
{
    return dpi >= 0.01 && dpi <= 1e6;
}

cod_status cod_image_keep_dpi(cod_image *image, double dpi_x, double dpi_y)
{
    struct cod_image_notes *notes = cod_image_notes_of(image);
    COD_REQUIRE_MEMORY(notes);
    if (is_dpi(dpi_x) && is_dpi(dpi_y)) {
        notes->dpi_x = dpi_x;
        notes->dpi_y = dpi_y;
    }
    return COD_OK;
}

void cod_image_move_notes(cod_image *to, cod_image *from)
{
    cod_image_notes_clear(to);
    to->notes = from->notes;
    from->notes = NULL;
    if (to->notes == NULL)
        return;
    const double dpi_x = to->notes->dpi_x * (double)to->width / (double)from->width,
                 dpi_y = to->notes->dpi_y * (double)to->height / (double)from->height;
    const bool known = is_dpi(dpi_x) && is_dpi(dpi_y);
    to->notes->dpi_x = known ? dpi_x : 0;
    to->notes->dpi_y = known ? dpi_y : 0;
    if (to->notes->exif != NULL)
        cod_exif_adapt(to->notes->exif, to->notes->exif_bytes, to);
}
