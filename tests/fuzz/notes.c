/*
 * What a picture's file says beside its pixels: EXIF, as a TIFF or as what is copied from one, and colour profiles.
 *
 * An input is a byte and the data. Byte 0: bits 0-1 what they are (EXIF, a TIFF file whose directory is told by the
 * first four bytes, a profile, or gamma and the places of white and colours), bit 2 the picture is written as a PNG or
 * a JPEG, bit 3 as which of them.
 */
#include "fuzz.h"

#include "data/exif_internal.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"
#include "data/profile_internal.h"

#include <math.h>

enum { EXIF, TIFF_FILE, PROFILE, GAMMA, KINDS };
enum { WRITTEN = 4, AS_JPEG = 8, WIDTH = 3, HEIGHT = 2, SCALE = 4, MOST_EXIF = 1 << 20, JPEG_SEGMENT = 65000 };

fuzz_kind fuzz_kinds[] = {{"EXIF", 0},     {"EXIF with a resolution", 0}, {"EXIF of a TIFF file", 0},
                          {"profiles", 0}, {"profiles of gamma", 0},      {"pictures", 0},
                          {NULL, 0}};

static bool is_same(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes)
{
    return a_bytes == b_bytes && (a_bytes == 0 || memcmp(a, b, a_bytes) == 0);
}

/** What is written is what is read: nobody turns the picture again. */
static void check_notes(const cod_image *image)
{
    const struct cod_image_notes *notes = image->notes;
    double dpi_x, dpi_y;
    if (notes == NULL)
        return;
    FUZZ_DEMAND(notes->dpi_x >= 0 && notes->dpi_x <= 1e6 && notes->dpi_y >= 0 && notes->dpi_y <= 1e6);
    FUZZ_DEMAND((notes->dpi_x > 0) == (notes->dpi_y > 0));
    if (notes->exif != NULL) {
        FUZZ_DEMAND(cod_exif_tiff_orientation(notes->exif, notes->exif_bytes) == 1);
        cod_exif_dpi(notes->exif, notes->exif_bytes, &dpi_x, &dpi_y);
        FUZZ_DEMAND(isfinite(dpi_x) && isfinite(dpi_y) && dpi_x >= 0 && dpi_y >= 0);
    }
    if (notes->profile != NULL)
        FUZZ_DEMAND(cod_profile_space_of(notes->profile, notes->profile_bytes) == COD_PROFILE_RGB);
}

/** Writes the picture, and reads it again with the same notes. */
static void write_and_read(const cod_image *image, bool jpeg)
{
    static char file_bytes[1 << 20];
    const struct cod_image_notes *notes = image->notes;
    cod_image again = {0};
    FILE *file = fmemopen(file_bytes, sizeof file_bytes, "wb");
    FUZZ_DEMAND(file != NULL);
    const int taken = fuzz_taken(jpeg ? cod_jpeg_encode(file, image, 90) : cod_png_encode(file, image, 90));
    const long bytes = ftell(file);
    fclose(file);
    if (!taken)
        return;
    FUZZ_DEMAND(fuzz_taken(jpeg ? cod_jpeg_decode((const uint8_t *)file_bytes, (size_t)bytes, false, &again)
                                : cod_png_decode((const uint8_t *)file_bytes, (size_t)bytes, false, &again)));
    FUZZ_DEMAND(again.width == WIDTH && again.height == HEIGHT);
    fuzz_kinds[5].taken++;
    if (notes != NULL && notes->exif != NULL && notes->exif_bytes < JPEG_SEGMENT)
        FUZZ_DEMAND(again.notes != NULL && again.notes->exif_bytes == notes->exif_bytes);
    check_notes(&again);
    cod_image_clear(&again);
}

static void finish(cod_image *image, const uint8_t *input)
{
    check_notes(image);
    if ((input[0] & WRITTEN) != 0 && image->notes != NULL)
        write_and_read(image, (input[0] & AS_JPEG) != 0);
    cod_image larger = {0};
    FUZZ_DEMAND(cod_image_init(&larger, SCALE * WIDTH, SCALE * HEIGHT, 3, 8) == COD_OK);
    cod_image_move_notes(&larger, image);
    check_notes(&larger);
    cod_image_clear(&larger);
}

static void read_exif(cod_image *image, const uint8_t *data, size_t bytes)
{
    const int orientation = cod_exif_tiff_orientation(data, bytes);
    FUZZ_DEMAND(orientation >= 1 && orientation <= 8 && cod_exif_orientation(data, bytes) >= 1);
    FUZZ_DEMAND(cod_image_keep_exif(image, data, bytes) == COD_OK);
    FUZZ_DEMAND(image->notes->exif_bytes == (image->notes->exif != NULL ? bytes : 0));
    fuzz_kinds[0].taken += image->notes->exif != NULL;
    fuzz_kinds[1].taken += image->notes->dpi_x > 0;
}

/** What was copied is copied again as it is. */
static void copy_exif(cod_image *image, const uint8_t *data, size_t bytes)
{
    uint8_t *exif, *again;
    size_t exif_bytes, again_bytes;
    if (bytes < 4)
        return;
    cod_exif_of_tiff(data + 4, bytes - 4, cod_image_number(data, 4, true), &exif, &exif_bytes);
    if (exif == NULL)
        return;
    fuzz_kinds[2].taken++;
    FUZZ_DEMAND(exif_bytes <= MOST_EXIF);
    cod_exif_of_tiff(exif, exif_bytes, 8, &again, &again_bytes);
    FUZZ_DEMAND(again != NULL && is_same(exif, exif_bytes, again, again_bytes));
    FUZZ_DEMAND(cod_image_keep_exif(image, exif, exif_bytes) == COD_OK && image->notes->exif_bytes == exif_bytes);
    free(again);
    free(exif);
}

static void keep_profile(cod_image *image, const void *data, size_t bytes, size_t kind)
{
    const struct cod_image_notes *notes;
    if (!fuzz_taken(cod_image_keep_profile(image, data, bytes)))
        return;
    notes = image->notes;
    if (notes->profile == NULL)
        return;
    fuzz_kinds[kind].taken++;
    /* A profile of gray may become three curves, of which one that is a formula takes as many values as lcms has. */
    FUZZ_DEMAND(notes->profile_bytes <= 3 * bytes + (1 << 15));
}

static void make_profile(cod_image *image, const uint8_t *data, size_t bytes)
{
    enum { NUMBERS = 9 };
    double numbers[NUMBERS];
    void *profile = NULL;
    size_t profile_bytes = 0;
    if (bytes < 4 * NUMBERS)
        return;
    for (size_t i = 0; i < NUMBERS; i++) /* as PNG has them */
        numbers[i] = (cod_image_number(data + 4 * i, 4, false) & INT32_MAX) / 1e5;
    if (numbers[0] > 0 && fuzz_taken(cod_profile_from_gamma(1 / numbers[0], numbers + 1, &profile, &profile_bytes)))
        keep_profile(image, profile, profile_bytes, 4);
    free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_image image = {0};
    if (bytes < 1)
        return 0;
    uint8_t *data = malloc(bytes - 1 + (bytes == 1)); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(data != NULL && cod_image_init(&image, WIDTH, HEIGHT, 3, 8) == COD_OK);
    memcpy(data, input + 1, bytes - 1);
    switch (input[0] % KINDS) {
    case EXIF:
        read_exif(&image, data, bytes - 1);
        break;
    case TIFF_FILE:
        copy_exif(&image, data, bytes - 1);
        break;
    case PROFILE:
        keep_profile(&image, data, bytes - 1, 3);
        break;
    default:
        make_profile(&image, data, bytes - 1);
    }
    finish(&image, input);
    cod_image_clear(&image);
    free(data);
    return 0;
}

/** Writes an input of this kind. */
static int write_input(const char *folder, const char *name, uint8_t kind, const void *data, size_t bytes)
{
    static uint8_t input[1 << 14];
    if (bytes > sizeof input - 1)
        return 1;
    input[0] = kind;
    memcpy(input + 1, data, bytes);
    return fuzz_write_file(folder, name, input, 1 + bytes);
}

/** EXIF with a turned picture, its resolution and size, a place, and two values that lie over their own directory. */
static const uint8_t turned[] = "II*\0\x08\0\0\0\x05\0"
                                "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0" /* orientation 6 */
                                "\x1a\x01\x05\0\x01\0\0\0\x4a\0\0\0" /* resolution, across */
                                "\x1b\x01\x05\0\x01\0\0\0\x52\0\0\0" /* and down */
                                "\x69\x87\x04\0\x01\0\0\0\x5a\0\0\0" /* EXIF's own directory */
                                "\x25\x88\x04\0\x01\0\0\0\x78\0\0\0" /* that of the place */
                                "\0\0\0\0"
                                "\x2c\x01\0\0\x01\0\0\0\x2c\x01\0\0\x01\0\0\0"
                                "\x02\0\x02\xa0\x03\0\x01\0\0\0\x03\0\0\0\x03\xa0\x04\0\x01\0\0\0\x02\0\0\0\0\0\0\0"
                                "\x01\0\x01\0\x02\0\x02\0\0\0N\0\0\0\0\0\0\0",
                     lying_over[] = "MM\0*\0\0\0\x08\0\x02"
                                    "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"
                                    "\x01\x1a\0\x05\0\0\0\x01\0\0\0\x0a" /* the resolution is the orientation's entry */
                                    "\x01\x1b\0\x05\0\0\0\x01\0\0\0\x0a\0\0\0\0",
                     over_head[] = "II*\0\x08\0\0\0\x02\0"
                                   "\x1a\x01\x05\0\x01\0\0\0\0\0\0\0" /* the resolution is the file's first bytes */
                                   "\x1b\x01\x05\0\x01\0\0\0\0\0\0\0\0\0\0\0",
                     /* An orientation in bytes, which no writer has and every reader took. */
    odd_type[] = "II*\0\x08\0\0\0\x01\0\x12\x01\x01\0\x02\0\0\0\x06\0\0\0\0\0\0\0",
                     /* A directory that is called 40 bytes, of which the file has none. */
    odd_pointer[] = "\x08\0\0\0II*\0\x08\0\0\0\x02\0\x0f\x01\x02\0\x04\0\0\0cod\0"
                    "\x69\x87\x01\0\x28\0\0\0\x08\0\0\0\0\0\0\0";

int fuzz_write(const char *folder)
{
    static const uint8_t gamma[] = {0, 0, 0x4e, 0x20, 0, 0, 0x7a, 0x26, 0, 0, 0x80, 0x84,
                                    0, 0, 0xfa, 0,    0, 0, 0x80, 0,    0, 0, 0x75, 0x30,
                                    0, 0, 0xea, 0x60, 0, 0, 0x3a, 0x98, 0, 0, 0x17, 0x70};
    static const double xy[] = {0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06};
    uint8_t tiff[4 + sizeof turned - 1] = {8};
    void *profile = NULL;
    size_t bytes = 0;
    memcpy(tiff + 4, turned, sizeof turned - 1);
    int failed = write_input(folder, "turned", EXIF | WRITTEN, turned, sizeof turned - 1) |
                 write_input(folder, "turned-jpeg", EXIF | WRITTEN | AS_JPEG, turned, sizeof turned - 1) |
                 write_input(folder, "lying-over", EXIF, lying_over, sizeof lying_over - 1) |
                 write_input(folder, "over-head", EXIF | WRITTEN, over_head, sizeof over_head - 1) |
                 write_input(folder, "odd-type", EXIF, odd_type, sizeof odd_type - 1) |
                 write_input(folder, "odd-pointer", TIFF_FILE, odd_pointer, sizeof odd_pointer - 1) |
                 write_input(folder, "tiff", TIFF_FILE, tiff, sizeof tiff) |
                 write_input(folder, "gamma", GAMMA | WRITTEN, gamma, sizeof gamma);
    failed |= cod_profile_from_gamma(1.8, xy, &profile, &bytes) != COD_OK ||
              write_input(folder, "profile", PROFILE | WRITTEN, profile, bytes);
    free(profile);
    return failed;
}
