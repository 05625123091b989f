/*
 * Weights are moved in tiles at one tap of the kernel: read along the rows in which they lie, of which a tile has few,
 * each of them long, because they may be a page apart; rounded; brought into *lines* of words of four bytes in the
 * order of the layout, in the first-level cache; and stored line by line. Stored row by row, each line of the cache
 * would be fetched again and again, which takes twice as long.
 */
#include "cpu/pack_internal.h"

#include "core/memory.h"
#include "cpu/cpu_internal.h"

#include <string.h>

enum { TILE_ROWS = 16, TILE_COLUMNS = 256 };

cod_status cpu_packing_create(cod_shape shape, cod_dtype dtype, cpu_packing **out)
{
    void *memory;
    const size_t head = cod_align_up(sizeof(cpu_packing));
    COD_TRY(cod_aligned_alloc(&memory, head + (size_t)(shape.n + shape.c) * sizeof(int64_t)));
    cpu_packing *packing = memory;
    *packing = (cpu_packing){.shape = shape, .dtype = dtype, .o_at = (void *)((char *)memory + head)};
    packing->i_at = packing->o_at + shape.n;
    *out = packing;
    return COD_OK;
}

cpu_weights cpu_weights_of(const float *data, cod_shape shape)
{
    return (cpu_weights){data, shape.h * shape.w * shape.c, shape.w * shape.c, shape.c, 1};
}

cpu_weights cpu_weights_flipped(const float *data, cod_shape shape)
{
    const int64_t taps = shape.h * shape.w;
    return (cpu_weights){data + (taps - 1) * shape.c, 1, -shape.w * shape.c, -shape.c, taps * shape.c};
}

/** How the words of a tile become lines. A word is an f32, or two bf16 that lie side by side when packed. */
typedef enum pack_order {
    ROWS,      /**< lines are rows; words are f32 or pairs of columns */
    COLUMNS,   /**< lines are columns, or pairs of them */
    ROW_PAIRS, /**< lines are pairs of rows */
    ELEMENTS   /**< nothing lies side by side: bf16 are stored one by one */
} pack_order;

/** Places in the packed weights, in elements: word k of a dimension is at at[k·step]. */
typedef struct pack_axis {
    int64_t count, step;
    const int64_t *at;
} pack_axis;

/** Rows are of the dimension in which plain weights do not lie side by side, columns of the other one. */
struct cpu_pack {
    cpu_pack *next; /**< of the device, in the order of their weights */
    cod_device *device;
    cpu_packing *packing;
    const float *begin; /**< the least address of the weights */
    const float *plain; /**< that of row 0 and column 0 of the first tap */
    char *packed;
    int64_t row_stride, h_stride, w_stride; /**< of the plain weights; rows follow one another */
    const int64_t *row_at, *column_at;
    int64_t rows, columns;
    pack_order order;
    int64_t run;              /**< words of a line that lie side by side when packed */
    bool is_current, is_used; /**< holds what the last update wrote; since when it was used */
};

typedef union pack_block {
    uint16_t bf16[TILE_ROWS][TILE_COLUMNS];
    int32_t words[TILE_ROWS * TILE_COLUMNS];
} pack_block;

static bool in_pairs(const int64_t *at, int64_t count)
{
    for (int64_t k = 1; k < count; k += 2)
        if (at[k] != at[k - 1] + 1)
            return false;
    return count % 2 == 0;
}

/** The longest runs of words that lie side by side, each from a multiple of its length on. */
static int64_t run_of(pack_axis axis, int64_t word)
{
    enum { LONGEST = 16 };
    for (int64_t run = LONGEST; run > 1; run /= 2) {
        bool whole = true;
        for (int64_t k = 0; k < axis.count && whole; k++)
            whole = k % run == 0 || axis.at[k * axis.step] == axis.at[(k - 1) * axis.step] + word;
        if (whole)
            return run;
    }
    return 1;
}

static void choose_order(cpu_pack *pack)
{
    const bool bf16 = pack->packing->dtype == COD_BF16;
    const int64_t word = bf16 ? 2 : 1;
    const int64_t by_row = run_of((pack_axis){pack->rows, 1, pack->row_at}, word);
    const int64_t by_column = run_of((pack_axis){pack->columns, 1, pack->column_at}, word);
    pack->order = ELEMENTS;
    if (bf16 && !in_pairs(pack->column_at, pack->columns)) {
        if (in_pairs(pack->row_at, pack->rows)) {
            pack->order = ROW_PAIRS;
            pack->run = by_column;
        }
        return;
    }
    const pack_axis words = {pack->columns / word, word, pack->column_at};
    const int64_t by_words = run_of(words, word);
    pack->order = by_row > by_words ? COLUMNS : ROWS;
    pack->run = by_row > by_words ? by_row : by_words;
}

/** Stores lines[outer][line_stride]: whole runs at once, their lengths being constants for the compiler. */
static void store_lines(const cpu_pack *pack, pack_axis outer, pack_axis inner, const int32_t *lines,
                        int64_t line_stride, int64_t packed_at)
{
    const int64_t bytes = (int64_t)cod_dtype_bytes(pack->packing->dtype);
    for (int64_t o = 0; o < outer.count; o++, lines += line_stride) {
        char *packed = pack->packed + (packed_at + outer.at[o * outer.step]) * bytes;
        int64_t i = 0;
        for (; pack->run == 16 && i + 16 <= inner.count; i += 16)
            memcpy(packed + inner.at[i * inner.step] * bytes, lines + i, 16 * sizeof *lines);
        for (; pack->run == 8 && i + 8 <= inner.count; i += 8)
            memcpy(packed + inner.at[i * inner.step] * bytes, lines + i, 8 * sizeof *lines);
        for (; i < inner.count; i++)
            memcpy(packed + inner.at[i * inner.step] * bytes, lines + i, sizeof *lines);
    }
}

static void store_elements(const cpu_pack *pack, pack_axis rows, pack_axis columns, const pack_block *block,
                           int64_t packed_at)
{
    uint16_t *packed = (uint16_t *)(void *)pack->packed + packed_at;
    for (int64_t r = 0; r < rows.count; r++)
        for (int64_t c = 0; c < columns.count; c++)
            packed[rows.at[r] + columns.at[c]] = block->bf16[r][c];
}

static pack_axis pairs_of(pack_axis axis)
{
    return (pack_axis){axis.count / 2, 2, axis.at};
}

static void pack_tap(const cpu_pack *pack, pack_axis rows, pack_axis columns, int64_t plain_at, int64_t packed_at)
{
    const cpu_kernels *kernels = pack->device->kernels;
    const bool bf16 = pack->packing->dtype == COD_BF16;
    pack_block rounded, lines;
    cpu_rows from = {(char *)(uintptr_t)(pack->plain + plain_at), pack->row_stride, false};
    if (bf16) {
        const cpu_rows to = {(char *)rounded.bf16, TILE_COLUMNS, true};
        kernels->add(from, (cpu_rows){0}, to, rows.count, columns.count, 1, 0, false);
        from = to;
    }
    const int64_t element = bf16 ? 2 : 4, row_bytes = from.stride * element;
    if (pack->order == ELEMENTS) {
        store_elements(pack, rows, columns, &rounded, packed_at);
    } else if (pack->order == ROW_PAIRS) {
        kernels->lanes_pair(from.data, row_bytes, rows.count, columns.count, true, lines.words, TILE_COLUMNS);
        store_lines(pack, pairs_of(rows), columns, lines.words, TILE_COLUMNS, packed_at);
    } else if (pack->order == COLUMNS) {
        kernels->lanes_spread(from.data, row_bytes, rows.count, columns.count * element, 0, lines.words, TILE_ROWS);
        store_lines(pack, bf16 ? pairs_of(columns) : columns, rows, lines.words, TILE_ROWS, packed_at);
    } else {
        store_lines(pack, rows, bf16 ? pairs_of(columns) : columns, (const int32_t *)(const void *)from.data,
                    row_bytes / (int64_t)sizeof(int32_t), packed_at);
    }
}

/** All taps of a tile, so that plain weights, which lie tap after tap, are read on. */
static void pack_tile(const cpu_pack *pack, int64_t row, int64_t column)
{
    const cpu_packing *packing = pack->packing;
    const pack_axis rows = {cpu_least(pack->rows - row, TILE_ROWS), 1, pack->row_at + row};
    const pack_axis columns = {cpu_least(pack->columns - column, TILE_COLUMNS), 1, pack->column_at + column};
    for (int64_t y = 0; y < packing->shape.h; y++)
        for (int64_t x = 0; x < packing->shape.w; x++)
            pack_tap(pack, rows, columns, row * pack->row_stride + column + y * pack->h_stride + x * pack->w_stride,
                     y * packing->h_stride + x * packing->w_stride);
}

static void pack_band(const cpu_pack *pack, int64_t band)
{
    for (int64_t column = 0; column < pack->columns; column += TILE_COLUMNS)
        pack_tile(pack, band * TILE_ROWS, column);
}

static int64_t bands_of(const cpu_pack *pack)
{
    return (pack->rows + TILE_ROWS - 1) / TILE_ROWS;
}

static void set_weights(cpu_pack *pack, const cpu_weights *weights)
{
    const cpu_packing *packing = pack->packing;
    const cod_shape shape = packing->shape;
    const bool by_output = weights->i_stride == 1;
    pack->plain = weights->data;
    pack->begin = weights->data + cpu_least(0, (shape.h - 1) * weights->h_stride) +
                  cpu_least(0, (shape.w - 1) * weights->w_stride);
    pack->row_stride = by_output ? weights->o_stride : weights->i_stride;
    pack->h_stride = weights->h_stride;
    pack->w_stride = weights->w_stride;
    pack->row_at = by_output ? packing->o_at : packing->i_at;
    pack->column_at = by_output ? packing->i_at : packing->o_at;
    pack->rows = by_output ? shape.n : shape.c;
    pack->columns = by_output ? shape.c : shape.n;
}

cod_status cpu_pack_create(cod_device *device, cpu_packing *packing, const cpu_weights *weights, size_t bytes,
                           cpu_pack **out)
{
    void *memory, *packed = NULL;
    cod_status status = cod_aligned_alloc(&memory, sizeof(cpu_pack));
    if (status != COD_OK) {
        cod_aligned_free(packing);
        return status;
    }
    cpu_pack *pack = memory;
    pack->packing = packing;
    status = cod_aligned_alloc(&packed, bytes);
    if (status != COD_OK) {
        cpu_pack_destroy(pack);
        return status;
    }
    pack->packed = packed;
    pack->device = device;
    set_weights(pack, weights);
    choose_order(pack);
    cpu_pack **place = &device->packs;
    while (*place != NULL && (*place)->begin < pack->begin)
        place = &(*place)->next;
    pack->next = *place;
    *place = pack;
    *out = pack;
    return COD_OK;
}

void cpu_pack_destroy(cpu_pack *pack)
{
    if (pack == NULL)
        return;
    cpu_pack **place = pack->device != NULL ? &pack->device->packs : NULL;
    while (place != NULL && *place != pack)
        place = &(*place)->next;
    if (place != NULL)
        *place = pack->next;
    cod_aligned_free(pack->packing);
    cod_aligned_free(pack->packed);
    cod_aligned_free(pack);
}

void *cpu_pack_memory(const cpu_pack *pack)
{
    return pack->packed;
}

static void renew_band(void *context, int64_t band, int thread)
{
    (void)thread;
    pack_band(context, band);
}

void cpu_pack_renew(cpu_pack *pack)
{
    cpu_parallel_for(pack->device, bands_of(pack), renew_band, pack);
    pack->is_current = pack->is_used = true;
}

bool cpu_pack_is_current(cpu_pack *pack)
{
    pack->is_used = true;
    return pack->is_current;
}

/** The packs of the same weights, which are neighbours in the list; whether an update can renew them as it writes. */
static bool take_neighbours(cpu_packed_weights *packed, const float *params, int64_t count)
{
    enum { LEAST = 1 << 14 }; /* fewer weights stay in the cache anyway */
    const cpu_pack *first = packed->first;
    bool used = false, alike = true;
    for (packed->end = packed->first; packed->end != NULL && packed->end->begin == first->begin;
         packed->end = packed->end->next) {
        used = used || packed->end->is_used;
        alike = alike && packed->end->rows == first->rows && packed->end->row_stride == first->row_stride;
    }
    const int64_t size = first->rows * first->row_stride, from = packed->at + packed->count;
    packed->at = first->begin - params;
    packed->count = size;
    packed->bands = bands_of(first);
    packed->band = TILE_ROWS * first->row_stride;
    return used && alike && size >= LEAST && packed->at >= from && packed->at + size <= count;
}

bool cpu_packs_next(const cod_device *device, const float *params, int64_t count, cpu_packed_weights *packed)
{
    cpu_pack *next = packed->end != NULL ? packed->end : device->packs;
    const int64_t done = packed->at + packed->count;
    if (packed->first != NULL && packed->end == NULL)
        return false;
    for (; next != NULL && next->begin < params; next = next->next)
        if (next->begin + next->rows * next->row_stride > params)
            next->is_current = false;
    while (next != NULL && next->begin < params + count) {
        packed->first = next;
        if (take_neighbours(packed, params, count))
            return true;
        for (; next != packed->end; next = next->next)
            next->is_current = false;
        packed->at = 0, packed->count = done;
    }
    return false;
}

void cpu_packs_renew_band(const cpu_packed_weights *packed, int64_t band)
{
    for (const cpu_pack *pack = packed->first; pack != packed->end; pack = pack->next)
        if (pack->is_used)
            pack_band(pack, band);
}

void cpu_packs_renewed(const cpu_packed_weights *packed)
{
    for (cpu_pack *pack = packed->first; pack != packed->end; pack = pack->next) {
        pack->is_current = pack->is_used;
        pack->is_used = false;
    }
}
