/*
 * Plain chunks of values and back (core/chunk_format.h), one value after another. These ops work on the bits of their
 * views.
 */
#include "core/chunk_format.h"
#include "core/fingerprint.h"
#include "core/int8_blocks.h"
#include "ref/ref_internal.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/** A chunk: the content of its header, and its values. */
typedef struct chunk {
    unsigned char *head, *payload;
    cod_chunk_coding coding;
    unsigned flags, parameter;
    uint32_t count;
    const float *values;    /**< [count] QUANTISE */
    const float *reference; /**< [count], or NULL */
    float *decoded;         /**< [count] */
    float rounding;         /**< QUANTISE: of deltas */
} chunk;

static unsigned char *bytes_of(const cod_view *view)
{
    return view->buffer != NULL ? (unsigned char *)view->buffer->host + view->offset : NULL;
}

static float *floats_of(const cod_view *view)
{
    return (float *)(void *)bytes_of(view);
}

/** Chunk `k`, as the header at `from` describes it, with its payload from byte `payload` on. */
static chunk chunk_at(const unsigned char *from, const cod_view *heads, const cod_view *payloads,
                      const cod_view *reference, const cod_view *decoded, int64_t k, uint64_t payload)
{
    const uint64_t first = cod_load_u64(from + COD_CHUNK_AT_FIRST);
    const float *held = floats_of(reference);
    return (chunk){.head = bytes_of(heads) + k * COD_CHUNK_HEADER_BYTES,
                   .payload = bytes_of(payloads) + payload,
                   .coding = (cod_chunk_coding)from[COD_CHUNK_AT_CODING],
                   .flags = from[COD_CHUNK_AT_FLAGS],
                   .parameter = from[COD_CHUNK_AT_PARAMETER],
                   .count = cod_load_u32(from + COD_CHUNK_AT_COUNT),
                   .reference = held != NULL ? held + first : NULL,
                   .decoded = floats_of(decoded) + first};
}

/**
 * The sum of squares of the values, or of their changes where `reference` is given, in the order that the format
 * demands.
 */
static double squares(const float *values, const float *reference, uint32_t count)
{
    double sum = 0;
    for (uint32_t at = 0; at < count; at += COD_CHUNK_STEP_BLOCK) {
        float lanes[COD_CHUNK_STEP_LANES] = {0};
        for (uint32_t i = at; i < count && i < at + COD_CHUNK_STEP_BLOCK; i++) {
            const float value = reference != NULL ? values[i] - reference[i] : values[i];
            lanes[i % COD_CHUNK_STEP_LANES] += value * value;
        }
        for (int lane = 0; lane < COD_CHUNK_STEP_LANES; lane++)
            sum += (double)lanes[lane];
    }
    return sum;
}

static float change_of(const chunk *c, uint32_t i)
{
    return c->reference != NULL ? c->values[i] - c->reference[i] : c->values[i];
}

static int step_of(const chunk *c, uint32_t i, float inverse)
{
    const float quotient = change_of(c, i) * inverse;
    return (int)(quotient + copysignf(c->reference != NULL ? c->rounding : 0.5f, quotient));
}

static uint32_t count_beyond(const chunk *c, float inverse, int limit)
{
    uint32_t beyond = 0;
    for (uint32_t i = 0; i < c->count; i++)
        beyond += abs(step_of(c, i, inverse)) > limit;
    return beyond;
}

/** Chooses the chunk's step, and whether it is a delta. @return 0 where 8-bit blocks serve better */
static double choose_step(chunk *c, double quality_db)
{
    const double weights = squares(c->values, NULL, c->count);
    double change = c->reference != NULL ? squares(c->values, c->reference, c->count) : weights;
    if (c->reference != NULL && !(change < weights)) {
        c->reference = NULL;
        change = weights;
    }
    double step = sqrt(12 * weights / (double)c->count) * pow(10, -quality_db / 20);
    if (step < sqrt(change) / COD_CHUNK_STEP_MOST) {
        float largest = 0;
        for (uint32_t i = 0; i < c->count; i++)
            largest = fmaxf(largest, fabsf(change_of(c, i)));
        step = fmax(step, (double)largest / COD_CHUNK_STEP_MOST);
    }
    if (!(step >= COD_CHUNK_LEAST_STEP && step <= FLT_MAX))
        return 0;
    const uint64_t escapes = count_beyond(c, (float)(1 / step), cod_chunk_largest_step(3));
    return COD_CHUNK_STEP_PREFIX_BYTES + c->count + 2 * escapes <= cod_chunk_step_bound(c->count) ? step : 0;
}

/** Writes steps as codes, and behind them those that are escaped. @return the payload's bytes */
static uint32_t write_steps(chunk *c, double step)
{
    const float inverse = (float)(1 / step), rounded = (float)step;
    c->parameter = 1;
    while (c->parameter < 3 &&
           count_beyond(c, inverse, cod_chunk_largest_step(c->parameter)) > c->count / COD_CHUNK_STEP_FEW)
        c->parameter++;
    const unsigned bits = 1u << c->parameter;
    const int largest = cod_chunk_largest_step(c->parameter);
    const uint64_t codes = cod_chunk_code_bytes(c->parameter, c->count);
    unsigned char *code = c->payload + COD_CHUNK_STEP_PREFIX_BYTES, *escaped = code + codes;
    memset(code, 0, codes);
    for (uint32_t i = 0; i < c->count; i++) {
        const int n = step_of(c, i, inverse);
        const bool fits = abs(n) <= largest;
        code[i * bits / 8] |= (unsigned char)((unsigned)(fits ? n + largest : 2 * largest + 1) << (i * bits % 8));
        if (!fits) {
            cod_store_u16(escaped, (uint16_t)n);
            escaped += 2;
        }
    }
    memcpy(c->payload, &rounded, sizeof rounded);
    cod_store_u32(c->payload + 4, (uint32_t)((uint64_t)(escaped - code) - codes) / 2);
    return (uint32_t)(escaped - c->payload);
}

static uint16_t finite_bf16(float value)
{
    const uint16_t rounded = cod_bf16_from_f32(value);
    /* The largest floats would round to infinity. */
    return isfinite(value) && (rounded & 0x7FFFu) == 0x7F80u ? (uint16_t)(rounded - 1) : rounded;
}

/** Writes a payload whose length the count decides. @return its bytes */
static uint32_t write_fixed(const chunk *c)
{
    const cod_int8_blocks blocks = {.log2 = COD_INT8_BLOCK_LOG2,
                                    .bf16_scales = (c->flags & COD_CHUNK_BF16_SCALES) != 0};
    switch (c->coding) {
    case COD_CHUNK_BF16:
        for (uint32_t i = 0; i < c->count; i++)
            cod_store_u16(c->payload + 2 * i, finite_bf16(c->values[i]));
        return 2 * c->count;
    case COD_CHUNK_INT8:
        cod_int8_blocks_pack(&blocks, c->values, c->count, c->payload);
        return (uint32_t)cod_int8_blocks_bytes(&blocks, c->count);
    default:
        memcpy(c->payload, c->values, 4 * c->count);
        return 4 * c->count;
    }
}

static void quantise(chunk *c, double quality_db)
{
    uint32_t stored;
    double step = 0;
    c->flags &= COD_CHUNK_BF16_SCALES;
    if (c->coding == COD_CHUNK_STEP) {
        step = choose_step(c, quality_db);
        c->flags = step > 0 ? (c->reference != NULL ? COD_CHUNK_DELTA : 0) : COD_CHUNK_BF16_SCALES;
        c->coding = step > 0 ? COD_CHUNK_STEP : COD_CHUNK_INT8;
        c->parameter = COD_INT8_BLOCK_LOG2;
    }
    stored = step > 0 ? write_steps(c, step) : write_fixed(c);
    c->head[COD_CHUNK_AT_CODING] = (unsigned char)c->coding;
    c->head[COD_CHUNK_AT_FLAGS] = (unsigned char)c->flags;
    c->head[COD_CHUNK_AT_PARAMETER] = (unsigned char)c->parameter;
    cod_store_u32(c->head + COD_CHUNK_AT_STORED_BYTES, stored);
}

static void read_steps(const chunk *c)
{
    const unsigned bits = 1u << c->parameter;
    const int largest = cod_chunk_largest_step(c->parameter);
    const unsigned char *code = c->payload + COD_CHUNK_STEP_PREFIX_BYTES,
                        *escaped = code + cod_chunk_code_bytes(c->parameter, c->count);
    float step;
    memcpy(&step, c->payload, sizeof step);
    for (uint32_t i = 0; i < c->count; i++) {
        int n = (int)((unsigned)code[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1)) - largest;
        if (n > largest) {
            n = (int16_t)cod_load_u16(escaped);
            escaped += 2;
        }
        const float change = (float)n * step;
        c->decoded[i] = (c->flags & COD_CHUNK_DELTA) != 0 ? c->reference[i] + change : change;
    }
}

/** Reads the payload. @return the fingerprint of its values */
static uint64_t dequantise(const chunk *c)
{
    const cod_int8_blocks blocks = {.log2 = c->parameter, .bf16_scales = (c->flags & COD_CHUNK_BF16_SCALES) != 0};
    switch (c->coding) {
    case COD_CHUNK_F32:
        memcpy(c->decoded, c->payload, 4 * c->count);
        break;
    case COD_CHUNK_BF16:
        for (uint32_t i = 0; i < c->count; i++)
            c->decoded[i] = cod_f32_from_bf16(cod_load_u16(c->payload + 2 * i));
        break;
    case COD_CHUNK_INT8:
        cod_int8_blocks_unpack(&blocks, c->payload, c->count, c->decoded);
        break;
    case COD_CHUNK_STEP:
        read_steps(c);
        break;
    }
    for (uint32_t i = 0; i < c->count; i++)
        if (!isfinite(c->decoded[i]))
            return COD_FINGERPRINT_NONE;
    return cod_fingerprint(c->decoded, c->count);
}

void ref_quantise(const cod_op *op)
{
    const cod_view *plan = &op->inputs[1], *heads = &op->outputs[0];
    const unsigned char *from = bytes_of(plan);
    const float *values = floats_of(&op->inputs[0]);
    for (int64_t k = 0; k < plan->shape.w; k++, from += COD_CHUNK_HEADER_BYTES) {
        chunk c = chunk_at(from, heads, &op->outputs[1], &op->inputs[2], &op->outputs[2], k,
                           (uint64_t)(k * op->outputs[1].shape.c));
        c.values = values + cod_load_u64(from + COD_CHUNK_AT_FIRST);
        c.rounding = op->attr.rounding;
        memcpy(c.head, from, COD_CHUNK_HEADER_BYTES);
        quantise(&c, op->attr.quality_db);
        cod_store_u64(c.head + COD_CHUNK_AT_CHECKSUM, dequantise(&c));
    }
}

void ref_dequantise(const cod_op *op)
{
    const cod_view *heads = &op->inputs[0];
    const unsigned char *from = bytes_of(heads);
    unsigned char *prints = bytes_of(&op->outputs[1]);
    for (int64_t k = 0; k < heads->shape.w; k++, from += COD_CHUNK_HEADER_BYTES) {
        const chunk c = chunk_at(from, heads, &op->inputs[1], &op->inputs[2], &op->outputs[0], k,
                                 cod_load_u64(from + COD_CHUNK_AT_CHECKSUM));
        cod_store_u64(prints + k * (int64_t)sizeof(uint64_t), dequantise(&c));
    }
}
