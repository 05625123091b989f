#include "core/int8_blocks.h"

#include "core/chunk_format.h"
#include "core/tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint64_t block_count(const cod_int8_blocks *blocks, uint64_t count)
{
    return (count + (UINT64_C(1) << blocks->log2) - 1) >> blocks->log2;
}

static size_t scale_bytes(const cod_int8_blocks *blocks)
{
    return blocks->bf16_scales ? sizeof(uint16_t) : sizeof(float);
}

uint64_t cod_int8_blocks_bytes(const cod_int8_blocks *blocks, uint64_t count)
{
    return count + block_count(blocks, count) * scale_bytes(blocks);
}

/** Rounded away from zero, so that no quotient exceeds 127. */
static uint16_t bf16_scale(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (uint16_t)((bits + 0xFFFFu) >> 16);
}

/** The largest magnitude, by the bits: those of finite floats are in order. NaN where a value is not finite. */
static float largest_of(const float *values, size_t count)
{
    int32_t largest = 0;
    float out;
    for (size_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&out, &largest, sizeof out);
    return isfinite(out) ? out : NAN;
}

/**
 * The scale of a block whose largest magnitude is `largest`; 127 times it stays finite, and tiny blocks become zero.
 */
static float block_scale(float largest, bool bf16)
{
    float scale = largest / 127.0f;
    if (isnan(scale))
        return scale;
    if (scale < FLT_MIN)
        return 0;
    if (bf16)
        scale = cod_f32_from_bf16(bf16_scale(scale));
    while (!isfinite(127.0f * scale))
        scale = bf16 ? cod_f32_from_bf16((uint16_t)(bf16_scale(scale) - 1)) : nextafterf(scale, 0);
    return scale;
}

static void pack_block(const float *restrict values, size_t count, float inverse, signed char *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const float quotient = values[i] * inverse;
        const float clipped = quotient > 127.0f ? 127.0f : quotient < -127.0f ? -127.0f : quotient;
        out[i] = (signed char)(int)(clipped + copysignf(0.5f, clipped));
    }
}

void cod_int8_blocks_pack(const cod_int8_blocks *blocks, const float *values, size_t count, unsigned char *out)
{
    const size_t block = (size_t)1 << blocks->log2;
    signed char *bytes = (signed char *)out + block_count(blocks, count) * scale_bytes(blocks);
    for (size_t at = 0; at < count; at += block, out += scale_bytes(blocks)) {
        const size_t n = count - at < block ? count - at : block;
        const float scale = block_scale(largest_of(values + at, n), blocks->bf16_scales);
        if (blocks->bf16_scales)
            cod_store_u16(out, bf16_scale(scale));
        else
            memcpy(out, &scale, sizeof scale);
        if (scale > 0)
            pack_block(values + at, n, 1 / scale, bytes + at);
        else
            memset(bytes + at, 0, n);
    }
}

void cod_int8_blocks_unpack(const cod_int8_blocks *blocks, const unsigned char *in, size_t count, float *values)
{
    const size_t block = (size_t)1 << blocks->log2;
    const signed char *bytes = (const signed char *)in + block_count(blocks, count) * scale_bytes(blocks);
    for (size_t at = 0; at < count; at += block, in += scale_bytes(blocks)) {
        const size_t n = count - at < block ? count - at : block;
        float scale;
        if (blocks->bf16_scales)
            scale = cod_f32_from_bf16(cod_load_u16(in));
        else
            memcpy(&scale, in, sizeof scale);
        for (size_t i = 0; i < n; i++)
            values[at + i] = (float)bytes[at + i] * scale;
    }
}
