#include "nn/weights.h"

#include "core/fingerprint.h"
#include "core/rng.h"

#include <string.h>

cod_status cod_weights_init(cod_weights *weights, const cod_backend *backend, cod_device *device, cod_graph *graph,
                            cod_dtype dtype, bool with_grads)
{
    *weights = (cod_weights){0};
    COD_TRY(cod_graph_status(graph));
    *weights = (cod_weights){.backend = backend, .device = device, .graph = graph, .dtype = dtype};
    weights->layout = cod_graph_layout(graph);
    for (size_t s = 0; s < cod_graph_set_count(graph); s++)
        weights->sets[s] = (cod_weights_set){.range = cod_graph_set_range(graph, (int)s), .version = 1};
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
    COD_THEN(status, backend->buffer_create(weights->device, state, &states));
    COD_THEN(status, backend->upload(weights->device, NULL, states, 0, host + trainable, state));
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
    cod_weights_changed(weights, COD_ALL_SETS);
    return COD_OK;
}

void cod_weights_changed(cod_weights *weights, cod_sets sets)
{
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        weights->sets[s].version += (sets & cod_set_of(s)) != 0;
}

void cod_weights_states_changed(cod_weights *weights, cod_sets sets)
{
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        weights->sets[s].state_version += (sets & cod_set_of(s)) != 0;
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

/** A parameter's initial values, of the weights' type. */
static void draw_param(const cod_param *param, cod_dtype dtype, cod_rng rng, void *values)
{
    const size_t count = (size_t)cod_shape_count(param->shape);
    if (dtype == COD_F32 && param->start == NULL && param->init.kind == COD_INIT_NORMAL) {
        cod_rng_fill_normal(&rng, param->init.scale, values, count);
        return;
    }
    if (dtype == COD_F32 && param->start == NULL && param->init.kind == COD_INIT_UNIFORM) {
        cod_rng_fill_uniform(&rng, param->init.scale, values, count);
        return;
    }
    for (size_t k = 0; k < count; k++) {
        const double value = param->start != NULL ? param->start[k] : draw(&rng, param->init);
        if (dtype == COD_F64)
            ((double *)values)[k] = value;
        else
            ((float *)values)[k] = (float)value;
    }
}

cod_status cod_weights_fill_initial(cod_weights *weights, uint64_t seed)
{
    const size_t element = cod_dtype_bytes(weights->dtype), count = cod_graph_param_count(weights->graph);
    void *values = NULL;
    size_t largest = 0;
    uint32_t used[COD_GRAPH_MAX_SETS] = {0}; /* parameters of each set so far */
    cod_status status = COD_OK;
    for (size_t i = 0; i < count; i++) {
        const size_t size = (size_t)cod_shape_count(cod_graph_param(weights->graph, i)->shape);
        largest = size > largest ? size : largest;
    }
    COD_TRY(cod_aligned_alloc(&values, largest * element));
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        const cod_param *param = cod_graph_param(weights->graph, i);
        const bool apart = weights->states != NULL && param->offset >= weights->layout.trainable;
        const size_t at = param->offset - (apart ? weights->layout.trainable : 0);
        draw_param(param, weights->dtype,
                   cod_rng_open(seed, (uint32_t)param->set, 0, 0, COD_RNG_INIT, used[param->set]++), values);
        status = weights->backend->upload(weights->device, NULL, apart ? weights->states : weights->values,
                                          at * element, values, (size_t)cod_shape_count(param->shape) * element);
    }
    cod_aligned_free(values);
    cod_weights_changed(weights, COD_ALL_SETS);
    cod_weights_states_changed(weights, COD_ALL_SETS);
    return status;
}

cod_layout cod_weights_layout_of(const cod_weights *weights, cod_sets sets)
{
    cod_layout layout = {0};
    for (size_t s = 0; s < cod_graph_set_count(weights->graph); s++) {
        const cod_set_range *range = &weights->sets[s].range;
        const size_t wanted = (sets & cod_set_of((int)s)) != 0;
        layout.trainable += wanted * range->count;
        layout.state += wanted * range->state_count;
    }
    return layout;
}

/** Copies `count` values between the host, from *at on, which moves on, and a buffer. */
static cod_status transfer(const cod_weights *weights, cod_buffer *buffer, size_t offset, size_t count, char **at,
                           bool in)
{
    const size_t bytes = count * cod_dtype_bytes(weights->dtype);
    char *const host = *at;
    *at += bytes;
    if (bytes == 0)
        return COD_OK;
    return in ? weights->backend->upload(weights->device, NULL, buffer, offset, host, bytes)
              : weights->backend->download(weights->device, NULL, host, buffer, offset, bytes);
}

static cod_status transfer_states(const cod_weights *weights, cod_sets sets, char *at, bool in)
{
    for (size_t s = 0; s < cod_graph_set_count(weights->graph); s++) {
        size_t offset;
        cod_buffer *states = cod_weights_states(weights, (int)s, &offset);
        if ((sets & cod_set_of((int)s)) != 0)
            COD_TRY(transfer(weights, states, offset, weights->sets[s].range.state_count, &at, in));
    }
    return COD_OK;
}

static cod_status transfer_sets(const cod_weights *weights, cod_sets sets, char *at, bool in)
{
    for (size_t s = 0; s < cod_graph_set_count(weights->graph); s++) {
        const cod_set_range *range = &weights->sets[s].range;
        if ((sets & cod_set_of((int)s)) != 0)
            COD_TRY(transfer(weights, weights->values, range->first * cod_dtype_bytes(weights->dtype), range->count,
                             &at, in));
    }
    return transfer_states(weights, sets, at, in);
}

cod_status cod_weights_download_sets(const cod_weights *weights, cod_sets sets, void *values)
{
    return transfer_sets(weights, sets, values, false);
}

cod_status cod_weights_upload_sets(cod_weights *weights, cod_sets sets, const void *values)
{
    cod_weights_changed(weights, sets);
    cod_weights_states_changed(weights, sets);
    return transfer_sets(weights, sets, (char *)(uintptr_t)values, true);
}

cod_status cod_weights_download_states(const cod_weights *weights, cod_sets sets, void *states)
{
    return transfer_states(weights, sets, states, false);
}

cod_status cod_weights_upload_states(cod_weights *weights, cod_sets sets, const void *states)
{
    cod_weights_states_changed(weights, sets);
    return transfer_states(weights, sets, (char *)(uintptr_t)states, true);
}

cod_status cod_weights_copy_set(cod_weights *to, int to_set, const cod_weights *from, int set, cod_buffer *average)
{
    const cod_set_range *source = &from->sets[set].range, *target = &to->sets[to_set].range;
    const size_t element = cod_dtype_bytes(from->dtype);
    size_t from_offset, to_offset;
    cod_buffer *to_states = cod_weights_states(to, to_set, &to_offset);
    cod_buffer *from_states = cod_weights_states(from, set, &from_offset);
    COD_REQUIRE(source->count == target->count && source->state_count == target->state_count &&
                    from->dtype == to->dtype,
                "the two sets hold %zu and %zu values", source->count, target->count);
    if (average != NULL) {
        from_states = average;
        from_offset = source->count * element;
    }
    cod_weights_changed(to, cod_set_of(to_set));
    cod_weights_states_changed(to, cod_set_of(to_set));
    COD_TRY(to->backend->copy(to->device, NULL, to->values, target->first * element,
                              average != NULL ? average : from->values, average != NULL ? 0 : source->first * element,
                              source->count * element));
    if (source->state_count == 0)
        return COD_OK;
    return to->backend->copy(to->device, NULL, to_states, to_offset, from_states, from_offset,
                             source->state_count * element);
}

/** Queues the copy of `count` values to byte *at of `target`, which moves on. */
/** Some of the values of cod_weights_download_sets(), which lie together. */
typedef struct stretch {
    cod_buffer *source;
    size_t offset, count; /**< bytes; values */
} stretch;

enum { STRETCHES_MOST = 2 * COD_GRAPH_MAX_SETS };

/** All of them in their order: trainable values by set, then states by set. @return how many */
static int find_stretches(const cod_weights *weights, cod_sets sets, cod_buffer *const *averages,
                          stretch out[STRETCHES_MOST])
{
    const int set_count = (int)cod_graph_set_count(weights->graph);
    int count = 0;
    for (int s = 0; s < set_count; s++) {
        const cod_set_range *range = &weights->sets[s].range;
        if ((sets & cod_set_of(s)) != 0)
            out[count++] =
                (stretch){averages[s] != NULL ? averages[s] : weights->values,
                          averages[s] != NULL ? 0 : range->first * cod_dtype_bytes(weights->dtype), range->count};
    }
    for (int s = 0; s < set_count; s++) {
        stretch states = {.count = weights->sets[s].range.state_count};
        states.source = cod_weights_states(weights, s, &states.offset);
        if ((sets & cod_set_of(s)) != 0)
            out[count++] = states;
    }
    return count;
}

cod_status cod_weights_copy_out(const cod_weights *weights, cod_sets sets, cod_buffer *const *averages,
                                cod_buffer *target, size_t first, size_t count)
{
    const size_t element = cod_dtype_bytes(weights->dtype), end = first + count;
    stretch stretches[STRETCHES_MOST];
    const int stretch_count = find_stretches(weights, sets, averages, stretches);
    size_t at = 0;
    for (int i = 0; i < stretch_count; at += stretches[i++].count) {
        const size_t from = first > at ? first : at, to = end < at + stretches[i].count ? end : at + stretches[i].count;
        if (from < to)
            COD_TRY(weights->backend->copy(weights->device, NULL, target, (from - first) * element, stretches[i].source,
                                           stretches[i].offset + (from - at) * element, (to - from) * element));
    }
    return COD_OK;
}

uint64_t cod_weights_fingerprint(const cod_weights *weights, cod_sets sets, cod_buffer *const *averages, size_t first,
                                 size_t count)
{
    stretch stretches[STRETCHES_MOST];
    const int stretch_count = find_stretches(weights, sets, averages, stretches);
    const size_t end = first + count;
    uint64_t sum = 0;
    size_t at = 0;
    for (int i = 0; i < stretch_count; at += stretches[i++].count) {
        const size_t from = first > at ? first : at, to = end < at + stretches[i].count ? end : at + stretches[i].count;
        const float *values = (const float *)((const char *)stretches[i].source->host + stretches[i].offset);
        if (from < to)
            sum += cod_fingerprint(values + (from - at), to - from) * (2 * (uint64_t)i + 1);
    }
    return sum;
}

cod_status cod_weights_take(cod_weights *weights, size_t first, size_t count, cod_buffer *source, size_t from)
{
    const size_t element = cod_dtype_bytes(weights->dtype);
    COD_REQUIRE(weights->states == NULL, "states lie apart");
    cod_weights_changed(weights, COD_ALL_SETS);
    cod_weights_states_changed(weights, COD_ALL_SETS);
    return weights->backend->copy(weights->device, NULL, weights->values, first * element, source, from * element,
                                  count * element);
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
        dims[0] = cod_shape_count(param->shape);
    FOR_EACH_ELEMENT(param, i, k)
    torch[k] = ours[i];
}

void cod_param_from_torch(const cod_param *param, const float *torch, float *ours)
{
    FOR_EACH_ELEMENT(param, i, k)
    ours[i] = torch[k];
}
