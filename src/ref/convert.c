#include "ref/ref_internal.h"

bool ref_dtype_known(cod_dtype dtype)
{
    return dtype == COD_F32 || dtype == COD_F64 || dtype == COD_BF16 || dtype == COD_I32 || dtype == COD_U8;
}

static double read_element(const char *address, cod_dtype dtype)
{
    switch (dtype) {
    case COD_F32:
        return *(const float *)address;
    case COD_F64:
        return *(const double *)address;
    case COD_BF16:
        return cod_f32_from_bf16(*(const uint16_t *)address);
    case COD_U8:
        return *(const uint8_t *)address;
    default:
        return *(const int32_t *)address;
    }
}

static void write_element(char *address, cod_dtype dtype, double value)
{
    switch (dtype) {
    case COD_F32:
        *(float *)address = (float)value;
        break;
    case COD_F64:
        *(double *)address = value;
        break;
    case COD_BF16:
        *(uint16_t *)address = cod_bf16_from_f32((float)value);
        break;
    default:
        *(int32_t *)address = (int32_t)value;
        break;
    }
}

void ref_load(const cod_view *view, double *dense)
{
    const int64_t pixels = view->shape.n * view->shape.h * view->shape.w, channels = view->shape.c;
    const int64_t size = (int64_t)cod_dtype_bytes(view->dtype);
    const char *pixel = cod_view_host(view);
    for (int64_t p = 0; p < pixels; p++, pixel += view->pixel_stride * size, dense += channels)
        for (int64_t c = 0; c < channels; c++)
            dense[c] = read_element(pixel + c * size, view->dtype);
}

void ref_store(const cod_view *view, const double *dense, bool add)
{
    const int64_t pixels = view->shape.n * view->shape.h * view->shape.w, channels = view->shape.c;
    const int64_t size = (int64_t)cod_dtype_bytes(view->dtype);
    char *pixel = cod_view_host(view);
    for (int64_t p = 0; p < pixels; p++, pixel += view->pixel_stride * size, dense += channels) {
        for (int64_t c = 0; c < channels; c++) {
            char *address = pixel + c * size;
            write_element(address, view->dtype, dense[c] + (add ? read_element(address, view->dtype) : 0));
        }
    }
}
