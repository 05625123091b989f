#include "io/zip.h"

#include "core/file_kind.h"
#include "core/memory.h"
#include "io_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Sizes of records without what follows them, and the marks that they begin with. */
enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MOST = 65535
};
#define LOCAL_MARK   0x04034b50u
#define CENTRAL_MARK 0x02014b50u
#define END_MARK     0x06054b50u
#define LOCATOR_MARK 0x07064b50u
#define END64_MARK   0x06064b50u

struct cod_zip {
    const unsigned char *bytes;
    size_t size;
    bool mapped;
    cod_arena names;
    cod_zip_entry *entries; /**< [count], by name */
    size_t count;
};

/** Position of the list of entries. */
typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

/** The number of so many bytes, least significant first. */
static uint64_t number_at(const unsigned char *at, int bytes)
{
    uint64_t number = 0;
    for (int i = bytes - 1; i >= 0; i--)
        number = number << 8 | at[i];
    return number;
}

static bool is_within(const cod_zip *zip, uint64_t offset, uint64_t bytes)
{
    return offset <= zip->size && bytes <= zip->size - offset;
}

/** The record at the end, behind which only a comment may stand; NULL = there is none. */
static const unsigned char *find_end(const cod_zip *zip)
{
    if (zip->size < END_BYTES)
        return NULL;
    for (size_t comment = 0; comment <= COMMENT_MOST && comment + END_BYTES <= zip->size; comment++) {
        const unsigned char *at = zip->bytes + zip->size - END_BYTES - comment;
        if (number_at(at, 4) == END_MARK && number_at(at + 20, 2) == comment)
            return at;
    }
    return NULL;
}

static cod_status damaged(const char *what)
{
    return cod_fail(COD_ERR_FORMAT, "damaged ZIP archive: %s", what);
}

static cod_status find_directory(const cod_zip *zip, directory *out)
{
    const unsigned char *end = find_end(zip);
    if (end == NULL)
        return cod_fail(COD_ERR_FORMAT, "no ZIP archive, or one that is cut off");
    *out =
        (directory){.count = number_at(end + 10, 2), .bytes = number_at(end + 12, 4), .offset = number_at(end + 16, 4)};
    const size_t before = (size_t)(end - zip->bytes);
    const unsigned char *locator = before >= LOCATOR_BYTES ? end - LOCATOR_BYTES : NULL;
    if (locator != NULL && number_at(locator, 4) == LOCATOR_MARK) {
        const uint64_t offset = number_at(locator + 8, 8);
        if (!is_within(zip, offset, END64_BYTES) || number_at(zip->bytes + offset, 4) != END64_MARK)
            return damaged("its ZIP64 record is not where it should be");
        const unsigned char *end64 = zip->bytes + offset;
        *out = (directory){
            .count = number_at(end64 + 32, 8), .bytes = number_at(end64 + 40, 8), .offset = number_at(end64 + 48, 8)};
    }
    if (!is_within(zip, out->offset, out->bytes) || out->count > out->bytes / CENTRAL_BYTES)
        return damaged("its list of files lies outside of it");
    return COD_OK;
}

/**
 * Replaces numbers that are too large for their fields by those of the entry's ZIP64 field, which has them in this
 * order.
 */
static cod_status read_large(const unsigned char *extra, size_t extra_bytes, uint64_t *const numbers[3])
{
    enum { HEAD = 4, ZIP64 = 1 };
    const unsigned char *from = NULL;
    size_t left = 0;
    for (size_t at = 0; from == NULL && at + HEAD <= extra_bytes;) {
        const size_t length = (size_t)number_at(extra + at + 2, 2);
        if (length > extra_bytes - at - HEAD)
            return damaged("a field of a file is cut off");
        if (number_at(extra + at, 2) == ZIP64) {
            from = extra + at + HEAD;
            left = length;
        }
        at += HEAD + length;
    }
    for (int i = 0; i < 3; i++) {
        if (*numbers[i] != UINT32_MAX)
            continue;
        if (left < 8)
            return damaged("a file's ZIP64 field is missing or too short");
        *numbers[i] = number_at(from, 8);
        from += 8;
        left -= 8;
    }
    return COD_OK;
}

/** Reads the entry at *at of the list, and moves *at to its end. */
static cod_status read_entry(cod_zip *zip, const directory *list, size_t *at, cod_zip_entry *entry)
{
    enum { ENCRYPTED = 1 };
    if (list->bytes - *at < CENTRAL_BYTES || number_at(zip->bytes + list->offset + *at, 4) != CENTRAL_MARK)
        return damaged("its list of files ends early");
    const unsigned char *central = zip->bytes + list->offset + *at;
    const size_t name_bytes = (size_t)number_at(central + 28, 2), extra_bytes = (size_t)number_at(central + 30, 2);
    const size_t behind = name_bytes + extra_bytes + (size_t)number_at(central + 32, 2);
    if (behind > list->bytes - *at - CENTRAL_BYTES)
        return damaged("its list of files ends early");
    *at += CENTRAL_BYTES + behind;
    char *name = cod_arena_alloc(&zip->names, name_bytes + 1);
    COD_REQUIRE_MEMORY(name);
    memcpy(name, central + CENTRAL_BYTES, name_bytes);
    if (strlen(name) != name_bytes)
        return damaged("a file's name has a zero byte");
    uint64_t packed = number_at(central + 20, 4), bytes = number_at(central + 24, 4),
             offset = number_at(central + 42, 4);
    COD_TRY(
        read_large(central + CENTRAL_BYTES + name_bytes, extra_bytes, (uint64_t *const[3]){&bytes, &packed, &offset}));
    if ((number_at(central + 8, 2) & ENCRYPTED) != 0 || number_at(central + 10, 2) != 0)
        return cod_fail(COD_ERR_UNSUPPORTED, "'%s' in it is compressed or encrypted; only stored files are read", name);
    if (packed != bytes || !is_within(zip, offset, LOCAL_BYTES) || number_at(zip->bytes + offset, 4) != LOCAL_MARK)
        return damaged("a file is not where its list says");
    const unsigned char *local = zip->bytes + offset;
    const uint64_t data = offset + LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2);
    if (!is_within(zip, data, bytes))
        return damaged("a file ends outside of it");
    *entry = (cod_zip_entry){
        .name = name, .data = zip->bytes + data, .bytes = (size_t)bytes, .crc = (uint32_t)number_at(central + 16, 4)};
    return COD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cod_zip_entry *)a)->name, ((const cod_zip_entry *)b)->name);
}

static cod_status read_directory(cod_zip *zip)
{
    directory list = {0};
    size_t at = 0;
    COD_TRY(find_directory(zip, &list));
    zip->entries = calloc((size_t)list.count + 1, sizeof *zip->entries);
    COD_REQUIRE_MEMORY(zip->entries);
    size_t held = 0;
    for (; zip->count < list.count; zip->count++) {
        COD_TRY(read_entry(zip, &list, &at, &zip->entries[zip->count]));
        held += zip->entries[zip->count].bytes;
        if (held > zip->size)
            return damaged("its files overlap");
    }
    qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return cod_fail(COD_ERR_FORMAT, "damaged ZIP archive: two files are called '%s'", zip->entries[i].name);
    return COD_OK;
}

static cod_status open_bytes(const void *data, size_t size, bool mapped, cod_zip **out)
{
    cod_zip *zip = calloc(1, sizeof *zip);
    if (zip == NULL && mapped)
        munmap((void *)(uintptr_t)data, size);
    COD_REQUIRE_MEMORY(zip);
    *zip = (cod_zip){.bytes = data, .size = size, .mapped = mapped};
    const cod_status status = read_directory(zip);
    if (status != COD_OK) {
        cod_zip_close(zip);
        return status;
    }
    *out = zip;
    return COD_OK;
}

cod_status cod_zip_open_memory(const void *data, size_t bytes, cod_zip **zip)
{
    *zip = NULL;
    return open_bytes(data, bytes, false, zip);
}

cod_status cod_zip_open(const char *path, cod_zip **zip)
{
    void *data = NULL;
    size_t size = 0;
    *zip = NULL;
    cod_status status = cod_io_map(path, END_BYTES, "ZIP archive", &data, &size);
    if (status == COD_OK) {
        status = open_bytes(data, size, true, zip);
        if (status != COD_OK)
            status = cod_fail_prefix(status, "'%s'", path);
    }
    return cod_explain_file(status, path, COD_FILE_ZIP | COD_FILE_TORCH, "a ZIP archive");
}

void cod_zip_close(cod_zip *zip)
{
    if (zip == NULL)
        return;
    cod_arena_clear(&zip->names);
    free(zip->entries);
    if (zip->mapped)
        munmap((void *)(uintptr_t)zip->bytes, zip->size);
    free(zip);
}

size_t cod_zip_count(const cod_zip *zip)
{
    return zip->count;
}

const cod_zip_entry *cod_zip_at(const cod_zip *zip, size_t index)
{
    return &zip->entries[index];
}

const cod_zip_entry *cod_zip_find(const cod_zip *zip, const char *name)
{
    const cod_zip_entry wanted = {.name = name};
    return zip->count > 0 ? bsearch(&wanted, zip->entries, zip->count, sizeof wanted, by_name) : NULL;
}

/** CRC-32 of ISO 3309, bits reversed, eight bytes at a time (Kounavis and Berry 2008, "slicing-by-8"). */
static uint32_t crc_of(const unsigned char *data, size_t bytes)
{
    enum { SLICES = 8 };
    uint32_t table[SLICES][256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[0][i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[0][i] = table[0][i] >> 1 ^ ((table[0][i] & 1) != 0 ? 0xEDB88320u : 0);
    }
    for (int k = 1; k < SLICES; k++) /* what a byte makes of the rest after k bytes of zeros */
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    for (; bytes >= SLICES; data += SLICES, bytes -= SLICES) {
        const uint64_t next = number_at(data, SLICES) ^ crc;
        crc = 0;
        for (int k = 0; k < SLICES; k++)
            crc ^= table[SLICES - 1 - k][next >> (8 * k) & 255];
    }
    for (; bytes > 0; data++, bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 255];
    return ~crc;
}

cod_status cod_zip_check(const cod_zip_entry *entry)
{
    return crc_of(entry->data, entry->bytes) == entry->crc
               ? COD_OK
               : cod_fail(COD_ERR_FORMAT, "'%s' in the archive is damaged: its CRC-32 is another", entry->name);
}
