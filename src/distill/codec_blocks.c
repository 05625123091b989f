/* The codings whose length the count alone decides: f32, bf16, and int8 in blocks. */
#include "distill/codec_internal.h"

#include "core/tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Payloads are little-endian arrays; on the machines we build for that is the machine's own order, and copying is enough. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "swap the payload's bytes on a big-endian machine");
_Static_assert(sizeof(float) == 4, "payloads are IEEE single precision");

static uint64_t block_count(const coding *how, uint64_t count)
{
    return (count + (UINT64_C(1) << how->parameter) - 1) >> how->parameter;
}

uint64_t codec_fixed_bytes(const coding *how, uint64_t count)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        return 4 * count;
    case COD_CHUNK_BF16:
        return 2 * count;
    case COD_CHUNK_INT8:
        return count + block_count(how, count) * (how->bf16_scales ? 2 : 4);
    case COD_CHUNK_STEP:
        break;
    }
    return 0;
}

/** Rounded away from zero, so that no quotient exceeds 127. */
static uint16_t bf16_scale(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (uint16_t)((bits + 0xFFFFu) >> 16);
}

/** The scale of a block whose largest magnitude is `largest`; 127 times it stays finite, and tiny blocks become zero. */
static float block_scale(float largest, bool bf16)
{
    float scale = largest / 127.0f;
    if (scale < FLT_MIN)
        return 0;
    if (bf16)
        scale = cod_f32_from_bf16(bf16_scale(scale));
    while (!isfinite(127.0f * scale))
        scale = bf16 ? cod_f32_from_bf16((uint16_t)(bf16_scale(scale) - 1)) : nextafterf(scale, 0);
    return scale;
}

/** The largest magnitude, by the bits: those of finite floats are in order. */
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
    return out;
}

static void pack_block(const float *restrict values, size_t count, float inverse, signed char *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const float quotient = values[i] * inverse;
        const float clipped = quotient > 127.0f ? 127.0f : quotient < -127.0f ? -127.0f : quotient;
        out[i] = (signed char)(int)(clipped + copysignf(0.5f, clipped));
    }
}

static void pack_int8(const coding *how, const float *values, size_t count, unsigned char *out)
{
    const size_t block = (size_t)1 << how->parameter, scale_bytes = how->bf16_scales ? 2 : 4;
    signed char *bytes = (signed char *)out + block_count(how, count) * scale_bytes;
    for (size_t at = 0; at < count; at += block, out += scale_bytes) {
        const size_t n = count - at < block ? count - at : block;
        const float scale = block_scale(largest_of(values + at, n), how->bf16_scales);
        if (how->bf16_scales)
            cod_store_u16(out, bf16_scale(scale));
        else
            memcpy(out, &scale, sizeof scale);
        pack_block(values + at, n, scale > 0 ? 1 / scale : 0, bytes + at);
    }
}

static void unpack_int8(const coding *how, const unsigned char *in, size_t count, float *values)
{
    const size_t block = (size_t)1 << how->parameter, scale_bytes = how->bf16_scales ? 2 : 4;
    const signed char *bytes = (const signed char *)in + block_count(how, count) * scale_bytes;
    for (size_t at = 0; at < count; at += block, in += scale_bytes) {
        const size_t n = count - at < block ? count - at : block;
        float scale;
        if (how->bf16_scales)
            scale = cod_f32_from_bf16(cod_load_u16(in));
        else
            memcpy(&scale, in, sizeof scale);
        for (size_t i = 0; i < n; i++)
            values[at + i] = (float)bytes[at + i] * scale;
    }
}

void codec_pack(const coding *how, const float *values, size_t count, unsigned char *out)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        memcpy(out, values, 4 * count);
        break;
    case COD_CHUNK_BF16:
        for (size_t i = 0; i < count; i++) {
            const uint16_t rounded = cod_bf16_from_f32(values[i]);
            /* The largest floats would round to infinity, which readers refuse. */
            cod_store_u16(out + 2 * i, (rounded & 0x7FFFu) == 0x7F80u ? (uint16_t)(rounded - 1) : rounded);
        }
        break;
    case COD_CHUNK_INT8:
        pack_int8(how, values, count, out);
        break;
    case COD_CHUNK_STEP:
        break;
    }
}

void codec_unpack(const coding *how, const unsigned char *in, size_t count, float *values)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        memcpy(values, in, 4 * count);
        break;
    case COD_CHUNK_BF16:
        for (size_t i = 0; i < count; i++)
            values[i] = cod_f32_from_bf16(cod_load_u16(in + 2 * i));
        break;
    case COD_CHUNK_INT8:
        unpack_int8(how, in, count, values);
        break;
    case COD_CHUNK_STEP:
        break;
    }
}
