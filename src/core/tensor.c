#include "core/tensor.h"

size_t cod_dtype_bytes(cod_dtype dtype)
{
    switch (dtype) {
    case COD_F64:
        return 8;
    case COD_F32:
    case COD_I32:
        return 4;
    case COD_BF16:
        return 2;
    case COD_S8:
    case COD_U8:
        return 1;
    }
    return 0;
}

const char *cod_dtype_name(cod_dtype dtype)
{
    static const char *const names[] = {"f32", "f64", "bf16", "i32", "s8", "u8"};
    return (size_t)dtype < sizeof names / sizeof names[0] ? names[dtype] : "unknown";
}

cod_view cod_view_dense(cod_buffer *buffer, size_t offset, cod_dtype dtype, cod_shape shape)
{
    return (cod_view){.buffer = buffer, .offset = offset, .dtype = dtype, .shape = shape, .pixel_stride = shape.c};
}

size_t cod_view_span_bytes(const cod_view *view)
{
    const int64_t pixels = view->shape.n * view->shape.h * view->shape.w;
    if (pixels == 0 || view->shape.c == 0)
        return 0;
    return (size_t)((pixels - 1) * view->pixel_stride + view->shape.c) * cod_dtype_bytes(view->dtype);
}

bool cod_view_equal(const cod_view *a, const cod_view *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->dtype == b->dtype &&
           cod_shape_equal(a->shape, b->shape) && a->pixel_stride == b->pixel_stride;
}

bool cod_views_overlap(const cod_view *a, const cod_view *b)
{
    const cod_view *low = a->offset < b->offset ? a : b, *high = a->offset < b->offset ? b : a;
    if (a->buffer == NULL || a->buffer != b->buffer || high->offset >= low->offset + cod_view_span_bytes(low))
        return false;
    if (a->dtype != b->dtype || a->pixel_stride != b->pixel_stride)
        return true;
    /* Slices of one tensor's channels: the place within a pixel of `low` at which `high` begins. */
    const size_t size = cod_dtype_bytes(a->dtype), row = (size_t)a->pixel_stride * size;
    const size_t at = (high->offset - low->offset) % row;
    return at < (size_t)low->shape.c * size || at + (size_t)high->shape.c * size > row;
}
