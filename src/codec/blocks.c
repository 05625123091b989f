/* The codings whose length depends on the count alone: f32, bf16, and int8 in blocks. */
#include "codec/codec_internal.h"

#include "core/tensor.h"

#include <string.h>

/*
 * Payloads are little-endian arrays; on the machines we build for that is the machine's own order, and copying is
 * enough.
 */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "swap the payload's bytes on a big-endian machine");
_Static_assert(sizeof(float) == 4, "payloads are IEEE single precision");

static cod_int8_blocks blocks_of(const coding *how)
{
    return (cod_int8_blocks){.log2 = how->parameter, .bf16_scales = how->bf16_scales};
}

uint64_t codec_fixed_bytes(const coding *how, uint64_t count)
{
    const cod_int8_blocks blocks = blocks_of(how);
    switch (how->kind) {
    case COD_CHUNK_F32:
        return 4 * count;
    case COD_CHUNK_BF16:
        return 2 * count;
    case COD_CHUNK_INT8:
        return cod_int8_blocks_bytes(&blocks, count);
    case COD_CHUNK_STEP:
        break;
    }
    return 0;
}

void codec_pack(const coding *how, const float *values, size_t count, unsigned char *out)
{
    const cod_int8_blocks blocks = blocks_of(how);
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
        cod_int8_blocks_pack(&blocks, values, count, out);
        break;
    case COD_CHUNK_STEP:
        break;
    }
}

void codec_unpack(const coding *how, const unsigned char *in, size_t count, float *values)
{
    const cod_int8_blocks blocks = blocks_of(how);
    switch (how->kind) {
    case COD_CHUNK_F32:
        memcpy(values, in, 4 * count);
        break;
    case COD_CHUNK_BF16:
        for (size_t i = 0; i < count; i++)
            values[i] = cod_f32_from_bf16(cod_load_u16(in + 2 * i));
        break;
    case COD_CHUNK_INT8:
        cod_int8_blocks_unpack(&blocks, in, count, values);
        break;
    case COD_CHUNK_STEP:
        break;
    }
}
