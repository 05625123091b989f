/**
 * @file
 * Tensor views: where a four-dimensional NHWC array lies and how it is laid out. A view owns nothing.
 *
 * Letters used everywhere: N batch, H height, W width, C channels, K classes, O output channels, I input channels.
 * A matrix [N, C] is a view of shape {N, 1, 1, C}; a vector [C] is {1, 1, 1, C}; a convolution weight is {O, KH, KW,
 * I}.
 */
#ifndef COD_CORE_TENSOR_H
#define COD_CORE_TENSOR_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum cod_dtype { COD_F32, COD_F64, COD_BF16, COD_I32, COD_S8, COD_U8 } cod_dtype;

size_t cod_dtype_bytes(cod_dtype dtype);
const char *cod_dtype_name(cod_dtype dtype);

typedef struct cod_shape {
    int64_t n, h, w, c;
} cod_shape;

static inline int64_t cod_shape_count(cod_shape shape)
{
    return shape.n * shape.h * shape.w * shape.c;
}

static inline bool cod_shape_equal(cod_shape a, cod_shape b)
{
    return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

/** Memory of a device; backends extend it. `host` is NULL where the host cannot address it. */
typedef struct cod_buffer {
    void *host;
    size_t bytes;
} cod_buffer;

/**
 * Part of a buffer seen as NHWC. Element (n, y, x, c) lies at
 * offset + ((n*H + y)*W + x) * pixel_stride * size + c * size, so a slice of channels of a wider tensor is a view too.
 */
typedef struct cod_view {
    cod_buffer *buffer; /**< borrowed; NULL = no tensor */
    size_t offset;      /**< bytes */
    cod_dtype dtype;
    cod_shape shape;
    int64_t pixel_stride; /**< elements from one pixel to the next, at least shape.c */
} cod_view;

/** A dense view (pixel_stride = C) of `buffer` from byte `offset` on. */
cod_view cod_view_dense(cod_buffer *buffer, size_t offset, cod_dtype dtype, cod_shape shape);

static inline bool cod_view_is_dense(const cod_view *view)
{
    return view->pixel_stride == view->shape.c;
}

/** Bytes from the view's first element to one past its last. */
size_t cod_view_span_bytes(const cod_view *view);

/** Whether both views have the same elements of the same buffer in the same layout. */
bool cod_view_equal(const cod_view *a, const cod_view *b);

/**
 * Whether any byte may belong to both views. Slices of different channels of one tensor do not overlap; an absent view
 * overlaps nothing.
 */
bool cod_views_overlap(const cod_view *a, const cod_view *b);

/** Address of the view's first element; only where the host can address the buffer. */
static inline void *cod_view_host(const cod_view *view)
{
    return (char *)view->buffer->host + view->offset;
}

/** Rounds to the nearest bfloat16, ties to even; NaN stays NaN. */
static inline uint16_t cod_bf16_from_f32(float value)
{
    union {
        float f;
        uint32_t u;
    } bits = {.f = value};
    if ((bits.u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((bits.u >> 16) | 0x40u);
    return (uint16_t)((bits.u + 0x7FFFu + ((bits.u >> 16) & 1u)) >> 16);
}

static inline float cod_f32_from_bf16(uint16_t value)
{
    union {
        uint32_t u;
        float f;
    } bits = {.u = (uint32_t)value << 16};
    return bits.f;
}

#endif
