#include "cpu/cpu_internal.h"

#include <string.h>

enum { FLAT_ROW = 64 };

cpu_chunks cpu_chunks_of(int64_t pixels, int64_t channels)
{
    enum { CHUNK_ELEMENTS = 32768, LONGEST = 1024 };
    int64_t size = CHUNK_ELEMENTS / (channels > 0 ? channels : 1);
    size = size < 1 ? 1 : size > LONGEST ? LONGEST : size;
    return (cpu_chunks){pixels, size, (pixels + size - 1) / size};
}

cpu_grid cpu_grid_of(const cod_view *const *views, size_t count, bool by_channel)
{
    const cod_shape shape = views[0]->shape;
    const int64_t elements = cod_shape_count(shape);
    bool flat = !by_channel && shape.c % FLAT_ROW != 0;
    for (size_t i = 0; i < count; i++)
        flat = flat && (!cpu_present(views[i]) || cod_view_is_dense(views[i]));
    if (!flat)
        return (cpu_grid){shape.n * shape.h * shape.w, shape.c, 0};
    return (cpu_grid){elements / FLAT_ROW, FLAT_ROW, elements % FLAT_ROW};
}

cpu_activation cpu_activation_of(const cod_op_attr *attr)
{
    return attr->activation == COD_ACT_SIGMOID ? CPU_ACT_SIGMOID
           : attr->activation == COD_ACT_TANH  ? CPU_ACT_TANH
                                               : CPU_ACT_SLOPE;
}

void cpu_fill_slope(float *slope, int64_t channels, const cod_op_attr *attr, const cod_view *learnt)
{
    const float *values = attr->activation == COD_ACT_PRELU ? cod_view_host(learnt) : NULL;
    const bool per_channel = values != NULL && cod_shape_count(learnt->shape) > 1;
    const float one = attr->activation == COD_ACT_RELU         ? 0.0f
                      : attr->activation == COD_ACT_LEAKY_RELU ? attr->leak
                      : values != NULL                         ? values[0]
                                                               : 1.0f;
    for (int64_t c = 0; c < cpu_padded(channels); c++)
        slope[c] = per_channel && c < channels ? values[c] : one;
}

cpu_affine cpu_fill_activation(float *vectors, int64_t channels, const cod_op_attr *attr, const cod_view *learnt)
{
    const int64_t padded = cpu_padded(channels);
    float *slope = vectors, *zeros = slope + padded, *ones = zeros + padded;
    cpu_fill_slope(slope, channels, attr, learnt);
    for (int64_t c = 0; c < padded; c++) {
        zeros[c] = 0;
        ones[c] = 1;
    }
    return (cpu_affine){zeros, ones, zeros, slope};
}

void cpu_fill_biased(float *vectors, int64_t channels, const cod_op *op)
{
    const int64_t padded = cpu_padded(channels);
    float *bias = vectors + 3 * padded;
    cpu_fill_activation(vectors, channels, &op->attr, &op->inputs[3]);
    memset(bias, 0, (size_t)padded * sizeof *bias);
    if (cpu_present(&op->inputs[2]))
        cpu_fill_vector(bias, channels, &op->inputs[2]);
}

cpu_affine cpu_biased_from(const float *vectors, int64_t channels, int64_t first)
{
    const int64_t padded = cpu_padded(channels);
    const float *slope = vectors + first, *zeros = slope + padded, *ones = zeros + padded, *bias = ones + padded;
    return (cpu_affine){zeros, ones, bias, slope};
}

void cpu_fill_vector(float *target, int64_t channels, const cod_view *source)
{
    memcpy(target, cod_view_host(source), (size_t)channels * sizeof(float));
    memset(target + channels, 0, (size_t)(cpu_padded(channels) - channels) * sizeof(float));
}
