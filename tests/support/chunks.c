#include "support/chunks.h"

#include "core/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ODD_BYTES = 4 * 3 }; /* of values in their buffers, so that nothing leans on their place */

/** A value of a chunk of this kind. */
static float value_of(cod_rng *rng, uint32_t kind, size_t i)
{
    const float value = (float)(0.05 * cod_rng_normal(rng));
    switch (kind) {
    case 0:
        return 0;
    case 1:
        return 1e-25f * value;
    case 2:
        return 1e33f * value;
    case 3: /* outliers, which are escaped */
        return i % 19 == 7 ? 40 * value : value;
    case 4: /* one value that says all */
        return i % 300 == 44 ? FLT_MAX : value;
    default:
        return value;
    }
}

void cod_test_chunk_case_init(cod_test_chunk_case *c, uint64_t seed)
{
    static const float movements[] = {0, 1e-4f, 0.01f, 0.1f, 1, 100};
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
    const size_t count = 1 + cod_rng_below(&rng, 7000);
    *c = (cod_test_chunk_case){.count = count,
                               .exact_from = seed % 3 == 0 ? cod_rng_below(&rng, (uint32_t)count) : UINT64_MAX,
                               .chunk_values = 256 + cod_rng_below(&rng, 2500),
                               .coding = seed % 2 == 0 ? COD_CHUNK_STEP : (cod_chunk_coding)cod_rng_below(&rng, 4),
                               .bf16_scales = cod_rng_below(&rng, 2) == 0,
                               .quality_db = 6 + cod_rng_below(&rng, 43)};
    static const float roundings[] = {0.5f, 0.25f, 0.1f};
    c->rounding = roundings[cod_rng_below(&rng, 3)];
    c->values = malloc(count * sizeof(float));
    c->reference = cod_rng_below(&rng, 4) > 0 ? malloc(count * sizeof(float)) : NULL;
    for (size_t i = 0; i < count; i++)
        c->values[i] = value_of(&rng, cod_rng_below(&rng, 12) + (i > 0 ? 5 : 0), i);
    for (size_t first = 0; first < count; first += c->chunk_values) { /* whole chunks of one kind, some of them */
        const uint32_t kind = cod_rng_below(&rng, 10);
        for (size_t i = first; i < first + c->chunk_values && i < count && kind < 6; i++)
            c->values[i] = value_of(&rng, kind, i);
    }
    const float movement = movements[cod_rng_below(&rng, 6)];
    for (size_t i = 0; i < count && c->reference != NULL; i++)
        c->reference[i] = c->values[i] * (1 + movement * (float)cod_rng_normal(&rng));
    for (size_t i = 0; i < count && c->reference != NULL; i++)
        c->reference[i] = isfinite(c->reference[i]) ? c->reference[i] : 0;
}

void cod_test_chunk_case_clear(cod_test_chunk_case *c)
{
    free(c->values);
    free(c->reference);
}

size_t cod_test_chunk_plan(const cod_test_chunk_case *c, unsigned char *heads)
{
    size_t chunks = 0;
    for (uint64_t first = 0; first < c->count; chunks++) {
        uint64_t end = first + c->chunk_values < c->count ? first + c->chunk_values : c->count;
        if (first < c->exact_from && c->exact_from < end)
            end = c->exact_from;
        const bool exact = first >= c->exact_from;
        const cod_chunk_coding coding = exact ? COD_CHUNK_F32 : c->coding;
        if (heads != NULL) {
            unsigned char *head = heads + chunks * COD_CHUNK_HEADER_BYTES;
            memset(head, 0, COD_CHUNK_HEADER_BYTES);
            cod_store_u32(head + COD_CHUNK_AT_MAGIC, COD_CHUNK_MAGIC);
            head[COD_CHUNK_AT_CODING] = (unsigned char)coding;
            head[COD_CHUNK_AT_FLAGS] = coding == COD_CHUNK_INT8 && c->bf16_scales ? COD_CHUNK_BF16_SCALES : 0;
            head[COD_CHUNK_AT_PARAMETER] = coding == COD_CHUNK_INT8 ? 8 : 0;
            cod_store_u32(head + COD_CHUNK_AT_COUNT, (uint32_t)(end - first));
            cod_store_u64(head + COD_CHUNK_AT_FIRST, first);
        }
        first = end;
    }
    return chunks;
}

static cod_view vector_of(cod_buffer *buffer, size_t count)
{
    return cod_view_dense(buffer, buffer != NULL ? ODD_BYTES : 0, COD_F32, (cod_shape){1, 1, 1, (int64_t)count});
}

static cod_view rows_of(cod_buffer *buffer, size_t rows, size_t bytes)
{
    return cod_view_dense(buffer, 0, COD_U8, (cod_shape){1, 1, (int64_t)rows, (int64_t)bytes});
}

static cod_status make_buffers(cod_test_chunks *t, bool held, bool in_place)
{
    const size_t bytes = ODD_BYTES + t->values * sizeof(float);
    const struct {
        cod_buffer **buffer;
        size_t bytes;
    } wanted[] = {{&t->x, bytes},
                  {held ? &t->reference : NULL, bytes},
                  {held && in_place ? NULL : &t->y, bytes},
                  {&t->plan, t->chunks * COD_CHUNK_HEADER_BYTES},
                  {&t->heads, t->chunks * COD_CHUNK_HEADER_BYTES},
                  {&t->payloads, t->chunks * t->room},
                  {&t->prints, t->chunks * sizeof(uint64_t)}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].buffer != NULL)
            COD_TRY(t->on.backend->buffer_create(t->on.device, wanted[i].bytes, wanted[i].buffer));
    t->y = t->y != NULL ? t->y : t->reference;
    return COD_OK;
}

cod_status cod_test_chunks_init(cod_test_chunks *t, cod_test_device on, const cod_test_chunk_case *c, bool in_place)
{
    *t = (cod_test_chunks){.on = on,
                           .values = c->count,
                           .chunks = cod_test_chunk_plan(c, NULL),
                           .room = (4 * (size_t)c->chunk_values + 16 + 15) / 16 * 16};
    COD_TRY(make_buffers(t, c->reference != NULL, in_place));
    const cod_view x = vector_of(t->x, t->values), y = vector_of(t->y, t->values),
                   reference = t->reference != NULL ? vector_of(t->reference, t->values) : (cod_view){0};
    const cod_view heads = rows_of(t->heads, t->chunks, COD_CHUNK_HEADER_BYTES),
                   plan = rows_of(t->plan, t->chunks, COD_CHUNK_HEADER_BYTES),
                   payloads = rows_of(t->payloads, t->chunks, t->room),
                   prints = rows_of(t->prints, t->chunks, sizeof(uint64_t));
    const cod_op quantise = {.kind = COD_OP_QUANTISE,
                             .attr = {.quality_db = c->quality_db, .rounding = c->rounding},
                             .inputs = {x, plan, reference},
                             .outputs = {heads, payloads, y},
                             .name = "test"};
    const cod_op dequantise = {.kind = COD_OP_DEQUANTISE,
                               .inputs = {heads, rows_of(t->payloads, 1, t->chunks * t->room), reference},
                               .outputs = {y, prints},
                               .name = "test"};
    COD_TRY(on.backend->plan_create(on.device, &quantise, &t->quantise));
    return on.backend->plan_create(on.device, &dequantise, &t->dequantise);
}

void cod_test_chunks_clear(cod_test_chunks *t)
{
    const cod_backend *backend = t->on.backend;
    if (t->quantise != NULL)
        backend->plan_destroy(t->quantise);
    if (t->dequantise != NULL)
        backend->plan_destroy(t->dequantise);
    cod_buffer *const buffers[] = {t->x,        t->reference, t->y != t->reference ? t->y : NULL, t->plan, t->heads,
                                   t->payloads, t->prints};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i] != NULL)
            backend->buffer_destroy(t->on.device, buffers[i]);
}

static cod_status write_values(cod_test_chunks *t, cod_buffer *buffer, const float *values)
{
    return t->on.backend->upload(t->on.device, NULL, buffer, ODD_BYTES, values, t->values * sizeof *values);
}

static cod_status read_values(cod_test_chunks *t, float *values)
{
    return t->on.backend->download(t->on.device, NULL, values, t->y, ODD_BYTES, t->values * sizeof *values);
}

cod_status cod_test_chunks_quantise(cod_test_chunks *t, const cod_test_chunk_case *c, const unsigned char *plan,
                                    unsigned char *heads, unsigned char *payloads, float *y)
{
    const cod_backend *backend = t->on.backend;
    COD_TRY(write_values(t, t->x, c->values));
    if (c->reference != NULL)
        COD_TRY(write_values(t, t->reference, c->reference));
    COD_TRY(backend->upload(t->on.device, NULL, t->plan, 0, plan, t->plan->bytes));
    COD_TRY(backend->plan_run(t->quantise, NULL));
    COD_TRY(backend->download(t->on.device, NULL, heads, t->heads, 0, t->heads->bytes));
    COD_TRY(backend->download(t->on.device, NULL, payloads, t->payloads, 0, t->payloads->bytes));
    return read_values(t, y);
}

cod_status cod_test_chunks_dequantise(cod_test_chunks *t, const cod_test_chunk_case *c, const unsigned char *heads,
                                      const unsigned char *payloads, float *y, uint64_t *prints)
{
    const cod_backend *backend = t->on.backend;
    if (c->reference != NULL)
        COD_TRY(write_values(t, t->reference, c->reference));
    for (size_t k = 0; k < t->chunks; k++) {
        unsigned char head[COD_CHUNK_HEADER_BYTES];
        memcpy(head, heads + k * sizeof head, sizeof head);
        cod_store_u64(head + COD_CHUNK_AT_CHECKSUM, k * t->room);
        COD_TRY(backend->upload(t->on.device, NULL, t->heads, k * sizeof head, head, sizeof head));
    }
    COD_TRY(backend->upload(t->on.device, NULL, t->payloads, 0, payloads, t->payloads->bytes));
    COD_TRY(backend->plan_run(t->dequantise, NULL));
    COD_TRY(backend->download(t->on.device, NULL, prints, t->prints, 0, t->prints->bytes));
    return read_values(t, y);
}
