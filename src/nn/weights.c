#include "nn/weights.h"

#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

cod_status cod_weights_init(cod_weights *weights, const cod_backend *backend, cod_device *device, cod_graph *graph,
                            cod_dtype dtype, bool with_grads)
{
    *weights = (cod_weights){0};
    COD_TRY(cod_graph_status(graph));
    *weights = (cod_weights){.backend = backend, .device = device, .graph = graph, .dtype = dtype, .version = 1};
    weights->layout = cod_graph_layout(graph);
    const size_t element = cod_dtype_bytes(dtype);
    cod_status status = backend->buffer_create(device, cod_weights_count(weights) * element, &weights->values);
    if (status == COD_OK && with_grads)
        status = backend->buffer_create(device, weights->layout.trainable * element, &weights->grads);
    if (status != COD_OK)
        cod_weights_clear(weights);
    return status;
}

void cod_weights_clear(cod_weights *weights)
{
    if (weights->values != NULL && !weights->placed)
        weights->backend->buffer_destroy(weights->device, weights->values);
    if (weights->grads != NULL && !weights->placed)
        weights->backend->buffer_destroy(weights->device, weights->grads);
    if (weights->states != NULL)
        weights->backend->buffer_destroy(weights->device, weights->states);
    *weights = (cod_weights){0};
}

cod_status cod_weights_place(cod_weights *weights, cod_buffer *values, cod_buffer *grads, bool fill)
{
    const cod_backend *backend = weights->backend;
    const size_t element = cod_dtype_bytes(weights->dtype);
    const size_t trainable = weights->layout.trainable * element, state = weights->layout.state * element;
    cod_buffer *states = NULL;
    char *host = NULL;
    COD_REQUIRE(!weights->placed, "the weights lie in the caller's memory already");
    COD_TRY(cod_aligned_alloc((void **)&host, trainable + state));
    cod_status status = cod_weights_download(weights, host);
    if (status == COD_OK && fill)
        status = backend->upload(weights->device, NULL, values, 0, host, trainable);
    if (status == COD_OK)
        status = backend->buffer_create(weights->device, state, &states);
    if (status == COD_OK)
        status = backend->upload(weights->device, NULL, states, 0, host + trainable, state);
    cod_aligned_free(host);
    if (status != COD_OK) {
        if (states != NULL)
            backend->buffer_destroy(weights->device, states);
        return status;
    }
    backend->buffer_destroy(weights->device, weights->values);
    if (weights->grads != NULL)
        backend->buffer_destroy(weights->device, weights->grads);
    weights->values = values;
    weights->grads = weights->grads != NULL ? grads : NULL;
    weights->states = states;
    weights->placed = true;
    weights->version++;
    return COD_OK;
}

static double draw(cod_rng *rng, cod_init init)
{
    switch (init.kind) {
    case COD_INIT_CONSTANT:
        return init.scale;
    case COD_INIT_UNIFORM:
        return init.scale * (2 * cod_rng_uniform(rng) - 1);
    case COD_INIT_NORMAL:
        return init.scale * cod_rng_normal(rng);
    }
    return 0;
}

cod_status cod_weights_fill_initial(cod_weights *weights, uint64_t seed)
{
    void *values = NULL;
    COD_TRY(cod_aligned_alloc(&values, cod_weights_count(weights) * cod_dtype_bytes(weights->dtype)));
    for (size_t i = 0; i < cod_graph_param_count(weights->graph); i++) {
        const cod_param *param = cod_graph_param(weights->graph, i);
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_INIT, (uint32_t)i);
        for (size_t k = 0; k < (size_t)cod_shape_count(param->shape); k++) {
            const double value = draw(&rng, param->init);
            if (weights->dtype == COD_F64)
                ((double *)values)[param->offset + k] = value;
            else
                ((float *)values)[param->offset + k] = (float)value;
        }
    }
    const cod_status status = cod_weights_upload(weights, values);
    cod_aligned_free(values);
    return status;
}

/** Bytes that lie in `values`. */
static size_t values_bytes(const cod_weights *weights)
{
    const size_t count = weights->states != NULL ? weights->layout.trainable : cod_weights_count(weights);
    return count * cod_dtype_bytes(weights->dtype);
}

cod_status cod_weights_download(const cod_weights *weights, void *values)
{
    const size_t bytes = values_bytes(weights), all = cod_weights_count(weights) * cod_dtype_bytes(weights->dtype);
    COD_TRY(weights->backend->download(weights->device, NULL, values, weights->values, 0, bytes));
    if (weights->states == NULL)
        return COD_OK;
    return weights->backend->download(weights->device, NULL, (char *)values + bytes, weights->states, 0, all - bytes);
}

cod_status cod_weights_upload(cod_weights *weights, const void *values)
{
    const size_t bytes = values_bytes(weights), all = cod_weights_count(weights) * cod_dtype_bytes(weights->dtype);
    weights->version++;
    COD_TRY(weights->backend->upload(weights->device, NULL, weights->values, 0, values, bytes));
    if (weights->states == NULL)
        return COD_OK;
    return weights->backend->upload(weights->device, NULL, weights->states, 0, (const char *)values + bytes,
                                    all - bytes);
}

/** Calls for each element: index in our layout, index in PyTorch's. */
#define FOR_EACH_ELEMENT(param, ours, torch)                                                                           \
    const cod_shape s =                                                                                                \
        (param)->rank == 2 && (param)->flattened.c                                                                     \
            ? (cod_shape){(param)->shape.n, (param)->flattened.h, (param)->flattened.w, (param)->flattened.c}          \
            : (param)->shape;                                                                                          \
    for (int64_t o = 0; o < s.n; o++)                                                                                  \
        for (int64_t y = 0; y < s.h; y++)                                                                              \
            for (int64_t x = 0; x < s.w; x++)                                                                          \
                for (int64_t c = 0, ours = 0, torch = 0;                                                               \
                     ours = ((o * s.h + y) * s.w + x) * s.c + c, torch = ((o * s.c + c) * s.h + y) * s.w + x, c < s.c; \
                     c++)

void cod_param_to_torch(const cod_param *param, const float *ours, float *torch, int64_t dims[4])
{
    if (param->rank == 4)
        memcpy(dims, (const int64_t[]){param->shape.n, param->shape.c, param->shape.h, param->shape.w},
               4 * sizeof *dims);
    else if (param->rank == 2)
        dims[0] = param->shape.n, dims[1] = param->shape.c;
    else
        dims[0] = param->shape.c;
    FOR_EACH_ELEMENT(param, i, k)
    torch[k] = ours[i];
}

void cod_param_from_torch(const cod_param *param, const float *torch, float *ours)
{
    FOR_EACH_ELEMENT(param, i, k)
    ours[i] = torch[k];
}
