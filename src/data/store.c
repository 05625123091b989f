#include "data/store_internal.h"

#include "core/hash.h"
#include "data/threads_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 512 }; /**< room for the reason of a picture that turns out broken */

/** At the store's beginning; the table of pictures follows. */
typedef struct store_header {
    uint64_t count, pixel_bytes;
} store_header;

/** A store being built: first planned from the files' headers, then filled. */
typedef struct builder {
    const cod_source_list *sources;
    cod_stored *pictures; /**< private copy of the table */
    bool *left_out;       /**< by the caller's choice */
    char **reasons;       /**< NULL or why the picture is broken */
    unsigned char *base;
    size_t bytes, pixel_bytes;
} builder;

static cod_status note_broken(builder *b, size_t index)
{
    b->pictures[index].broken = 1;
    b->reasons[index] = strdup(cod_error_message());
    COD_REQUIRE_MEMORY(b->reasons[index]);
    return COD_OK;
}

/**
 * Whether a failure is caused by the file. Other failures are caused by this process, and must not decide which
 * pictures are trained on.
 */
static bool is_of_the_file(cod_status status)
{
    return status != COD_OK && status != COD_ERR_MEMORY;
}

static cod_status probe(void *context, size_t index)
{
    builder *b = context;
    int64_t width = 0, height = 0;
    const cod_status status = cod_source_probe(b->sources, index, &width, &height);
    b->pictures[index].low_width = (int32_t)width;
    b->pictures[index].low_height = (int32_t)height;
    return is_of_the_file(status) ? note_broken(b, index) : status;
}

static cod_status fill(void *context, size_t index)
{
    builder *b = context;
    const cod_stored *picture = &b->pictures[index];
    if (picture->broken || picture->offset == 0)
        return COD_OK;
    const int64_t width = picture->low_width, height = picture->low_height;
    uint8_t *low = b->base + picture->offset;
    const cod_status status =
        cod_source_load(b->sources, index, width, height, low, low + (size_t)(width * height * 3));
    return is_of_the_file(status) ? note_broken(b, index) : status;
}

/** Gives each picture its place, as long as they fit, and room for a reason. */
static void plan(builder *b, size_t limit_bytes)
{
    b->bytes = cod_align_up(sizeof(store_header) + b->sources->count * sizeof(cod_stored));
    b->pixel_bytes = 0;
    for (size_t i = 0; i < b->sources->count; i++) {
        cod_stored *picture = &b->pictures[i];
        const size_t pixels =
            picture->broken ? 0 : cod_pair_bytes(picture->low_width, picture->low_height, b->sources->scale);
        const bool held = !b->left_out[i] && pixels > 0 && pixels <= limit_bytes - b->pixel_bytes;
        if (held)
            b->pixel_bytes += pixels;
        if (held || picture->broken) {
            picture->offset = b->bytes;
            b->bytes += cod_align_up(pixels > REASON_BYTES ? pixels : REASON_BYTES);
        }
    }
}

/** Writes the table and the reasons beside the pixels. */
static void conclude(builder *b)
{
    for (size_t i = 0; i < b->sources->count; i++)
        if (b->pictures[i].broken)
            snprintf((char *)b->base + b->pictures[i].offset, REASON_BYTES, "%s", b->reasons[i]);
    const store_header header = {.count = b->sources->count, .pixel_bytes = b->pixel_bytes};
    memcpy(b->base, &header, sizeof header);
    memcpy(b->base + sizeof header, b->pictures, b->sources->count * sizeof *b->pictures);
}

static cod_status build_block(builder *b, cod_block *block, size_t limit_bytes, const cod_store_choice *choice,
                              bool report)
{
    COD_TRY(cod_run_parallel(b->sources->count, probe, b));
    choice->leave_out(choice->context, b->pictures, b->left_out);
    plan(b, limit_bytes);
    COD_TRY(cod_block_reserve(block, b->bytes, report));
    b->base = block->base;
    COD_TRY(cod_run_parallel(b->sources->count, fill, b));
    conclude(b);
    return cod_block_complete(block);
}

static cod_status build(cod_store *store, const cod_source_list *sources, size_t limit_bytes,
                        const cod_store_choice *choice, bool report)
{
    const size_t count = sources->count;
    builder b = {.sources = sources,
                 .pictures = calloc(count + 1, sizeof *b.pictures),
                 .left_out = calloc(count + 1, sizeof *b.left_out),
                 .reasons = calloc(count + 1, sizeof *b.reasons)};
    cod_status status = b.pictures && b.left_out && b.reasons
                            ? COD_OK
                            : cod_fail(COD_ERR_MEMORY, "out of memory for %zu pictures", count);
    COD_THEN(status, build_block(&b, &store->block, limit_bytes, choice, report));
    for (size_t i = 0; b.reasons != NULL && i < count; i++)
        free(b.reasons[i]);
    free(b.reasons);
    free(b.left_out);
    free(b.pictures);
    return status;
}

static cod_status read_header(const cod_store *store, size_t count, store_header *header)
{
    memcpy(header, store->block.base, sizeof *header);
    if (header->count != count)
        return cod_fail(COD_ERR_FORMAT, "%s: is of other pictures", store->block.shared.path);
    return COD_OK;
}

cod_status cod_store_open(cod_store *store, const cod_source_list *sources, size_t limit_bytes,
                          const cod_store_choice *choice, bool report)
{
    *store = (cod_store){0};
    /* Another limit or choice holds other pictures. */
    const uint64_t key =
        cod_hash(&choice->key, sizeof choice->key, cod_hash(&limit_bytes, sizeof limit_bytes, sources->key));
    cod_status status = COD_OK;
    if (!cod_block_open(&store->block, key, report))
        status = build(store, sources, limit_bytes, choice, report);
    store_header header;
    COD_THEN(status, read_header(store, sources->count, &header));
    if (status != COD_OK) {
        cod_store_close(store);
        return status;
    }
    store->base = store->block.base;
    store->pictures = (const cod_stored *)(const void *)(store->base + sizeof header);
    store->pixel_bytes = header.pixel_bytes;
    return COD_OK;
}

void cod_store_close(cod_store *store)
{
    cod_block_close(&store->block);
    *store = (cod_store){0};
}
