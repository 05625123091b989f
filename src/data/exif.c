/* EXIF: a TIFF of directories without a picture (CIPA DC-008, "Exif 2.32", section 4). */
#include "data/exif_internal.h"

#include "core/log.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD = 6,
    TIFF_HEAD = 8, /**< byte order, and where the first directory is: no values are there */
    MOST_BYTES =
        1 << 20, /**< that are copied: entries may share their values, and so stand for more than the file has */
    ENTRY = 12,
    TAG_ORIENTATION = 0x0112,
    TAG_X_RESOLUTION = 0x011A,
    TAG_Y_RESOLUTION = 0x011B,
    TAG_RESOLUTION_UNIT = 0x0128,
    TAG_EXIF = 0x8769,
    TAG_GPS = 0x8825,
    TAG_INTEROPERABILITY = 0xA005,
    TAG_MAKER_NOTE = 0x927C,
    TAG_PIXEL_WIDTH = 0xA002,
    TAG_PIXEL_HEIGHT = 0xA003,
    SHORT = 3,
    LONG = 4,
    RATIONAL = 5,
    UNIT_INCH = 2,
    UNIT_CM = 3
};

/** A TIFF in memory. */
typedef struct tiff {
    const uint8_t *bytes;
    size_t count;
    bool little;
} tiff;

static bool tiff_open(const uint8_t *bytes, size_t count, tiff *t)
{
    if (count < 8)
        return false;
    *t = (tiff){bytes, count, memcmp(bytes, "II", 2) == 0};
    return t->little || memcmp(bytes, "MM", 2) == 0;
}

static uint32_t number(const tiff *t, size_t at, int bytes)
{
    return cod_image_number(t->bytes + at, bytes, t->little);
}

/** Entries of a directory that lie within the file. */
static size_t entries(const tiff *t, size_t directory)
{
    if (directory > t->count - 2)
        return 0;
    const size_t count = number(t, directory, 2), room = (t->count - directory - 2) / ENTRY;
    return count < room ? count : room;
}

/** Offset of an entry of a directory; 0 = there is none. */
static size_t find(const tiff *t, size_t directory, unsigned tag)
{
    const size_t count = entries(t, directory);
    for (size_t i = 0; i < count; i++)
        if (number(t, directory + 2 + i * ENTRY, 2) == tag)
            return directory + 2 + i * ENTRY;
    return 0;
}

/** Bytes of an entry's values; 0 = of an unknown type, or they lie beyond the end. @param[out] at  where they are */
static size_t values_of(const tiff *t, size_t entry, size_t *at)
{
    static const uint8_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8};
    const uint32_t type = number(t, entry + 2, 2);
    const uint64_t bytes = type < sizeof sizes ? (uint64_t)sizes[type] * number(t, entry + 4, 4) : 0;
    *at = bytes <= 4 ? entry + 8 : number(t, entry + 8, 4);
    return *at <= t->count && bytes <= t->count - *at ? (size_t)bytes : 0;
}

/** The first directory. */
static size_t first_directory(const tiff *t)
{
    return number(t, 4, 4);
}

int cod_exif_orientation(const uint8_t *bytes, size_t count)
{
    if (count < HEAD || memcmp(bytes, "Exif\0\0", HEAD) != 0)
        return 1;
    return cod_exif_tiff_orientation(bytes + HEAD, count - HEAD);
}

/** Bytes of an entry's first value where that is a whole number, as sizes and orientation are; 0 = another type. */
static int whole_bytes(const tiff *t, size_t entry)
{
    const uint32_t type = entry != 0 ? number(t, entry + 2, 2) : 0;
    return type == SHORT ? 2 : type == LONG ? 4 : 0;
}

/** The offset of the directory that an entry points to; 0 = none. */
static size_t pointed_to(const tiff *t, size_t entry)
{
    size_t at;
    return entry != 0 && number(t, entry + 2, 2) == LONG && values_of(t, entry, &at) == 4 ? number(t, entry + 8, 4) : 0;
}

int cod_exif_tiff_orientation(const uint8_t *bytes, size_t count)
{
    tiff t;
    const size_t entry = tiff_open(bytes, count, &t) ? find(&t, first_directory(&t), TAG_ORIENTATION) : 0;
    const int whole = entry != 0 ? whole_bytes(&t, entry) : 0;
    const uint32_t value = whole > 0 ? number(&t, entry + 8, whole) : 1;
    return value >= 1 && value <= 8 ? (int)value : 1;
}

static double rational(const tiff *t, size_t entry)
{
    size_t at;
    if (entry == 0 || number(t, entry + 2, 2) != RATIONAL || values_of(t, entry, &at) < 8)
        return 0;
    const double over = number(t, at, 4), under = number(t, at + 4, 4);
    return under > 0 ? over / under : 0;
}

void cod_exif_dpi(const uint8_t *bytes, size_t count, double *dpi_x, double *dpi_y)
{
    tiff t;
    *dpi_x = *dpi_y = 0;
    if (!tiff_open(bytes, count, &t))
        return;
    const size_t directory = first_directory(&t), unit = find(&t, directory, TAG_RESOLUTION_UNIT);
    const double factor = unit != 0 && number(&t, unit + 8, 2) == UNIT_CM ? 2.54 : 1;
    const double x = factor * rational(&t, find(&t, directory, TAG_X_RESOLUTION)),
                 y = factor * rational(&t, find(&t, directory, TAG_Y_RESOLUTION));
    if (x > 0 && y > 0) {
        *dpi_x = x;
        *dpi_y = y;
    }
}

static void put(uint8_t *at, uint32_t value, int bytes, bool little)
{
    for (int i = 0; i < bytes; i++)
        at[little ? i : bytes - 1 - i] = (uint8_t)(value >> (8 * i));
}

void cod_exif_drop_thumbnail(uint8_t *bytes, size_t count)
{
    tiff t;
    if (!tiff_open(bytes, count, &t))
        return;
    const size_t directory = first_directory(&t), next = directory + 2 + entries(&t, directory) * ENTRY;
    if (directory >= TIFF_HEAD && next <= count && count - next >= 4)
        put(bytes + next, 0, 4, t.little);
}

/** Writes an entry's only value, in its own type. */
static void put_value(const tiff *t, uint8_t *bytes, size_t entry, uint32_t value)
{
    put(bytes + entry + 8, value, whole_bytes(t, entry), t->little);
}

/** As a whole number of hundredths. */
static void put_rational(const tiff *t, uint8_t *bytes, size_t entry, double value)
{
    size_t at;
    if (entry == 0 || number(t, entry + 2, 2) != RATIONAL || values_of(t, entry, &at) < 8 || at < TIFF_HEAD ||
        !(value < 4e7))
        return;
    put(bytes + at, (uint32_t)lround(value * 100), 4, t->little);
    put(bytes + at + 4, 100, 4, t->little);
}

void cod_exif_adapt(uint8_t *bytes, size_t count, const cod_image *image)
{
    tiff t;
    if (!tiff_open(bytes, count, &t))
        return;
    const size_t directory = first_directory(&t), unit = find(&t, directory, TAG_RESOLUTION_UNIT);
    const double factor = unit != 0 && number(&t, unit + 8, 2) == UNIT_CM ? 1 / 2.54 : 1;
    if (image->notes->dpi_x > 0) {
        put_rational(&t, bytes, find(&t, directory, TAG_X_RESOLUTION), image->notes->dpi_x * factor);
        put_rational(&t, bytes, find(&t, directory, TAG_Y_RESOLUTION), image->notes->dpi_y * factor);
    }
    const size_t exif = pointed_to(&t, find(&t, directory, TAG_EXIF));
    if (exif != 0) {
        put_value(&t, bytes, find(&t, exif, TAG_PIXEL_WIDTH), (uint32_t)image->width);
        put_value(&t, bytes, find(&t, exif, TAG_PIXEL_HEIGHT), (uint32_t)image->height);
    }
    /* Last, because values may lie over each other: whoever reads it would turn the picture once more. */
    put_value(&t, bytes, find(&t, directory, TAG_ORIENTATION), 1);
}

/** EXIF that is being written. */
typedef struct writer {
    uint8_t *bytes;
    size_t count, room;
    bool little, failed;
} writer;

/** Appends zeros. @return their offset */
static size_t append(writer *w, size_t bytes)
{
    const size_t at = w->count, needed = at + bytes + (bytes & 1);
    w->failed = w->failed || needed > MOST_BYTES;
    if (!w->failed && needed > w->room) {
        uint8_t *larger = realloc(w->bytes, 2 * needed);
        w->failed = w->failed || larger == NULL;
        w->bytes = larger != NULL ? larger : w->bytes;
        w->room = larger != NULL ? 2 * needed : w->room;
    }
    if (w->failed)
        return 0;
    memset(w->bytes + at, 0, needed - at);
    w->count = needed;
    return at;
}

static void begin(writer *w, bool little)
{
    static const char heads[2][4] = {"MM\0*", "II*\0"};
    *w = (writer){.little = little};
    append(w, 8);
    if (w->failed)
        return;
    memcpy(w->bytes, heads[little], 4);
    put(w->bytes + 4, 8, 4, little);
}

/** @param[out] bytes  new; NULL = it is too large */
static void finish(writer *w, uint8_t **bytes, size_t *count)
{
    *bytes = NULL;
    *count = 0;
    if (w->failed) {
        free(w->bytes);
        cod_log_warn("EXIF of more than %d bytes, or than memory has room for, is left out", MOST_BYTES);
        return;
    }
    *bytes = w->bytes;
    *count = w->count;
}

static void put_head(writer *w, size_t entry, unsigned tag, unsigned type, uint32_t count)
{
    put(w->bytes + entry, tag, 2, w->little);
    put(w->bytes + entry + 2, type, 2, w->little);
    put(w->bytes + entry + 4, count, 4, w->little);
}

void cod_exif_of_dpi(double dpi_x, double dpi_y, uint8_t **bytes, size_t *count)
{
    writer w;
    begin(&w, true);
    const size_t directory = append(&w, 2 + 3 * ENTRY + 4), values = append(&w, 16);
    if (!w.failed) {
        const double dpi[2] = {dpi_x, dpi_y};
        put(w.bytes + directory, 3, 2, true);
        for (int i = 0; i < 2; i++) {
            const size_t entry = directory + 2 + (size_t)i * ENTRY, value = values + (size_t)i * 8;
            put_head(&w, entry, i == 0 ? TAG_X_RESOLUTION : TAG_Y_RESOLUTION, RATIONAL, 1);
            put(w.bytes + entry + 8, (uint32_t)value, 4, true);
            put(w.bytes + value, (uint32_t)lround(fmin(dpi[i], 4e7) * 100), 4, true);
            put(w.bytes + value + 4, 100, 4, true);
        }
        put_head(&w, directory + 2 + 2 * ENTRY, TAG_RESOLUTION_UNIT, SHORT, 1);
        put(w.bytes + directory + 2 + 2 * ENTRY + 8, UNIT_INCH, 2, true);
    }
    finish(&w, bytes, count);
}

/** Whether an entry of a picture's own directory is about the photograph: about its pixels it would be wrong. */
static bool is_about_photograph(unsigned tag)
{
    static const uint16_t tags[] = {0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x8298, TAG_EXIF, TAG_GPS};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (tags[i] == tag)
            return true;
    return false;
}

static bool is_kept(unsigned tag, bool main)
{
    if (main)
        return is_about_photograph(tag);
    /* Offsets within a maker's notes count from elsewhere. */
    return tag != TAG_MAKER_NOTE && tag != TAG_INTEROPERABILITY && tag != TAG_EXIF && tag != TAG_GPS;
}

static size_t copy_directory(const tiff *t, size_t directory, bool main, writer *w);

/** Whether an entry is of use: its values are there. */
static bool is_sound(const tiff *t, size_t entry)
{
    const unsigned tag = number(t, entry, 2);
    size_t at;
    return tag == TAG_EXIF || tag == TAG_GPS ? pointed_to(t, entry) != 0 : values_of(t, entry, &at) > 0;
}

/** Copies an entry with its values, or the directory that it points to. */
static void copy_entry(const tiff *t, size_t entry, writer *w, size_t to)
{
    const unsigned tag = number(t, entry, 2);
    size_t at;
    const size_t bytes = values_of(t, entry, &at);
    put_head(w, to, tag, number(t, entry + 2, 2), number(t, entry + 4, 4));
    if (tag == TAG_EXIF || tag == TAG_GPS) {
        const size_t below = copy_directory(t, pointed_to(t, entry), false, w);
        if (!w->failed)
            put(w->bytes + to + 8, (uint32_t)below, 4, w->little);
    } else if (bytes <= 4) {
        memcpy(w->bytes + to + 8, t->bytes + at, bytes);
    } else {
        const size_t values = append(w, bytes);
        if (w->failed)
            return;
        memcpy(w->bytes + values, t->bytes + at, bytes);
        put(w->bytes + to + 8, (uint32_t)values, 4, w->little);
    }
}

/** @return where it begins */
static size_t copy_directory(const tiff *t, size_t directory, bool main, writer *w)
{
    const size_t count = entries(t, directory);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t entry = directory + 2 + i * ENTRY;
        kept += is_kept(number(t, entry, 2), main) && is_sound(t, entry);
    }
    const size_t begins = append(w, 2 + kept * ENTRY + 4);
    if (w->failed)
        return 0;
    put(w->bytes + begins, (uint32_t)kept, 2, w->little);
    size_t to = begins + 2;
    for (size_t i = 0; i < count && !w->failed; i++) {
        const size_t entry = directory + 2 + i * ENTRY;
        if (!is_kept(number(t, entry, 2), main) || !is_sound(t, entry))
            continue;
        copy_entry(t, entry, w, to);
        to += ENTRY;
    }
    return begins;
}

void cod_exif_of_tiff(const uint8_t *file, size_t count, uint64_t directory, uint8_t **exif, size_t *bytes)
{
    enum { EMPTY = 8 + 2 + 4 };
    tiff t;
    writer w;
    *exif = NULL;
    *bytes = 0;
    if (!tiff_open(file, count, &t) || number(&t, 2, 2) != 42 || directory > count)
        return;
    begin(&w, t.little);
    if (!w.failed)
        copy_directory(&t, (size_t)directory, true, &w);
    finish(&w, exif, bytes);
    if (*exif != NULL && *bytes <= EMPTY) {
        free(*exif);
        *exif = NULL;
    }
}
