#include "safetensors_internal.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [COD_ST_F64] = {"F64", 8},   [COD_ST_I64] = {"I64", 8},         [COD_ST_U64] = {"U64", 8},
    [COD_ST_F32] = {"F32", 4},   [COD_ST_I32] = {"I32", 4},         [COD_ST_U32] = {"U32", 4},
    [COD_ST_F16] = {"F16", 2},   [COD_ST_BF16] = {"BF16", 2},       [COD_ST_I16] = {"I16", 2},
    [COD_ST_U16] = {"U16", 2},   [COD_ST_I8] = {"I8", 1},           [COD_ST_U8] = {"U8", 1},
    [COD_ST_BOOL] = {"BOOL", 1}, [COD_ST_F8_E4M3] = {"F8_E4M3", 1}, [COD_ST_F8_E5M2] = {"F8_E5M2", 1},
};

size_t cod_st_dtype_bytes(cod_st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *cod_st_dtype_name(cod_st_dtype dtype)
{
    return dtypes[dtype].name;
}

bool cod_st_dtype_find(const char *name, cod_st_dtype *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype = (cod_st_dtype)i;
            return true;
        }
    }
    return false;
}

cod_status cod_st_data_bytes(const cod_st_tensor *tensor, size_t *bytes)
{
    if (tensor->rank < 0 || tensor->rank > COD_ST_RANK_MAX)
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' has %d dimensions; at most %d are known", tensor->name,
                        tensor->rank, COD_ST_RANK_MAX);
    size_t total = cod_st_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(total, (size_t)tensor->shape[i], &total))
            return cod_fail(COD_ERR_FORMAT, "tensor '%s' has an impossible shape", tensor->name);
    *bytes = total;
    return COD_OK;
}

size_t cod_st_count(const cod_st_tensor *tensor)
{
    size_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= (size_t)tensor->shape[i];
    return count;
}

/** IEEE 754 binary16, subnormals, infinities and NaN included. */
static float f32_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, mantissa = half & 0x3FFu;
    const uint32_t exponent = half >> 10 & 0x1Fu;
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    float value = (float)mantissa * 0x1p-24f;
    if (exponent == 0)
        return sign ? -value : value;
    if (exponent == 31)
        bits = sign | 0x7F800000u | mantissa << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float f32_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

cod_status cod_st_to_f32(const cod_st_tensor *tensor, float *out, size_t count)
{
    if (cod_st_count(tensor) != count)
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' has %zu elements, not %zu", tensor->name, cod_st_count(tensor),
                        count);
    const unsigned char *data = tensor->data;
    if (tensor->dtype == COD_ST_F32) {
        if (count > 0)
            memcpy(out, data, count * sizeof *out);
        return COD_OK;
    }
    if (tensor->dtype == COD_ST_F64) {
        for (size_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, data + i * sizeof value, sizeof value);
            out[i] = (float)value;
        }
        return COD_OK;
    }
    if (tensor->dtype != COD_ST_F16 && tensor->dtype != COD_ST_BF16)
        return cod_fail(COD_ERR_FORMAT, "tensor '%s' is %s, not floating point", tensor->name,
                        cod_st_dtype_name(tensor->dtype));
    for (size_t i = 0; i < count; i++) {
        uint16_t value;
        memcpy(&value, data + i * sizeof value, sizeof value);
        out[i] = tensor->dtype == COD_ST_F16 ? f32_from_f16(value) : f32_from_bf16(value);
    }
    return COD_OK;
}
