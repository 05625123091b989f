/* Plans on cuDNN's engines. */
#include "cuda/tuner.cuh"

#ifndef COD_HAVE_CUDNN

void cudnn_candidates(const cod_plan *, const char *, cuda_candidates *) {}
void cudnn_close(cuda_cudnn *) {}

#else
#include "cuda/conv_library.cuh"
#include "cuda/cudnn.cuh"

extern "C" {
#include "core/log.h"
}

#include <cstdlib>
#include <cstring>

struct cudnn_state {
    cudnnBackendDescriptor_t plan, addresses; /**< the plan: the shape's */
    library_parts parts;
};

static cuda_cudnn *cudnn_of(cod_device *device)
{
    return device->tuner->cudnn;
}

static cod_status cudnn_open(const cudnn_calls *calls, cuda_cudnn **out)
{
    cuda_cudnn *cudnn = static_cast<cuda_cudnn *>(calloc(1, sizeof *cudnn));
    COD_REQUIRE_MEMORY(cudnn);
    cudnn->calls = calls;
    const cod_status status = COD_CUDNN(calls, cudnnCreate(&cudnn->target.handle));
    if (status != COD_OK)
        free(cudnn);
    else
        *out = cudnn;
    return status;
}

void cudnn_close(cuda_cudnn *cudnn)
{
    if (cudnn == nullptr)
        return;
    while (cudnn->shapes != nullptr) {
        cudnn_shape *next = cudnn->shapes->next;
        cudnn_shape_destroy(cudnn->shapes);
        cudnn->shapes = next;
    }
    cudnn->calls->cudnnDestroy(cudnn->target.handle);
    free(cudnn);
}

/* Running. */

static cod_status state_run(const cod_plan *plan, cudaStream_t stream)
{
    cuda_chain_end(plan->device); /* the library may do more than launch kernels */
    const cudnn_state *state = static_cast<const cudnn_state *>(plan->state);
    const cuda_cudnn *cudnn = cudnn_of(plan->device);
    COD_TRY(COD_CUDNN(cudnn->calls, cudnnSetStream(cudnn->target.handle, stream)));
    COD_TRY(COD_CUDNN(cudnn->calls, cudnnBackendExecute(cudnn->target.handle, state->plan, state->addresses)));
    return library_bias_run(plan->device, state->parts.gradient, stream);
}

static void state_clear(const cod_plan *plan)
{
    const cudnn_state *state = static_cast<const cudnn_state *>(plan->state);
    if (state->addresses != nullptr)
        cudnn_of(plan->device)->calls->cudnnBackendDestroyDescriptor(state->addresses);
}

/* Making. */

static void *address_of(const cod_view *view)
{
    return cuda_view_of(view).data;
}

/** Which view is which tensor of the graph: x, w, y, bias, residual. */
static void gather_addresses(const cod_op *op, const cudnn_state *state, void *addresses[CUDNN_RESIDUAL])
{
    const bool data = op->kind == COD_OP_CONV2D_BACKWARD_DATA, forward = op->kind == COD_OP_CONV2D;
    const bool weights = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    addresses[CUDNN_X - 1] = address_of(data ? &op->outputs[0] : &op->inputs[0]);
    addresses[CUDNN_W - 1] = address_of(weights ? &op->outputs[0] : &op->inputs[1]);
    addresses[CUDNN_Y - 1] = address_of(data ? &op->inputs[0] : weights ? &op->inputs[1] : &op->outputs[0]);
    addresses[CUDNN_BIAS - 1] = forward ? address_of(&op->inputs[2]) : nullptr;
    addresses[CUDNN_RESIDUAL - 1] = forward ? address_of(&op->inputs[4]) : nullptr;
    if (state->parts.weights != nullptr)
        addresses[CUDNN_W - 1] = state->parts.weights;
    if (state->parts.bias != nullptr)
        addresses[CUDNN_BIAS - 1] = state->parts.bias;
}

static cod_status bind_addresses(cod_plan *plan, void *workspace)
{
    cudnn_state *state = static_cast<cudnn_state *>(plan->state);
    void *all[CUDNN_RESIDUAL], *addresses[CUDNN_RESIDUAL];
    int64_t uids[CUDNN_RESIDUAL], count = 0;
    gather_addresses(plan->ops, state, all);
    for (int i = 0; i < CUDNN_RESIDUAL; i++) {
        if (all[i] == nullptr)
            continue;
        uids[count] = i + 1;
        addresses[count++] = all[i];
    }
    cudnn_bag bag = {cudnn_of(plan->device)->calls, nullptr, 0, 0, COD_OK};
    cudnnBackendDescriptor_t pack = cudnn_create(&bag, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    cudnn_set(&bag, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses);
    cudnn_set(&bag, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    cudnn_set(&bag, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    cudnn_finalize(&bag, pack, "addresses");
    const cod_status status = bag.status;
    if (status == COD_OK) {
        state->addresses = pack;
        bag.count = 0; /* it is the plan's now */
    }
    cudnn_bag_clear(&bag);
    return status;
}

static cod_status make_by_engine(cod_plan *plan, const cuda_candidate *candidate)
{
    cudnn_shape *shape = static_cast<cudnn_shape *>(candidate->source);
    cudnn_engine *engine = &shape->engines[candidate->number];
    COD_TRY(cudnn_engine_build(shape, &cudnn_of(plan->device)->target, candidate->number));
    if (static_cast<size_t>(engine->workspace_bytes) > plan->device->tuner->workspace_bytes)
        return cod_fail(COD_ERR_UNSUPPORTED, "it wants a workspace of %.0f MB",
                        1e-6 * static_cast<double>(engine->workspace_bytes));
    COD_TRY(cuda_plan_state(plan, sizeof(cudnn_state)));
    cudnn_state *state = static_cast<cudnn_state *>(plan->state);
    state->plan = engine->plan;
    plan->clear = state_clear;
    plan->run = state_run;
    const cod_op *op = plan->ops;
    const bool rounded = op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS && op->inputs[1].dtype != op->inputs[0].dtype;
    COD_TRY(library_parts_create(plan, static_cast<size_t>(engine->workspace_bytes), rounded ? &op->inputs[1] : nullptr,
                                 engine->rounded_bias ? &op->inputs[2] : nullptr, &state->parts));
    return bind_addresses(plan, state->parts.workspace);
}

/** Seconds after which no further engine is built ahead; the others are built when they are tried. */
static const double build_ahead_s = 3;

static void describe_shape(const cod_plan *plan, const cudnn_shape *shape)
{
    char text[256];
    cudnn_shape_describe(shape, text, sizeof text);
    cod_log_debug("cuda: cuDNN offers for %s '%s' %s", cod_op_kind_name(plan->ops[0].kind),
                  plan->ops[0].name != nullptr ? plan->ops[0].name : "", text);
}

static cod_status shape_of(const cod_plan *plan, const char *key, cudnn_shape **out)
{
    cuda_cudnn *cudnn = cudnn_of(plan->device);
    for (*out = cudnn->shapes; *out != nullptr; *out = (*out)->next)
        if (strcmp((*out)->key, key) == 0)
            return COD_OK;
    const cuda_tuner *tuner = plan->device->tuner;
    const char *wanted = cuda_choices_find(tuner->choices, key);
    COD_TRY(cudnn_shape_create(cudnn->calls, &cudnn->target, plan->ops, key, wanted, out));
    describe_shape(plan, *out);
    if (wanted == nullptr && tuner->spent_s < tuner->budget_s)
        cudnn_engines_build_ahead(*out, plan->ops, &cudnn->target, plan->device->ordinal, build_ahead_s);
    (*out)->next = cudnn->shapes;
    cudnn->shapes = *out;
    return COD_OK;
}

void cudnn_candidates(const cod_plan *plan, const char *key, cuda_candidates *list)
{
    cuda_tuner *tuner = plan->device->tuner;
    const cudnn_calls *calls = cudnn_library();
    cudnn_shape *shape = nullptr;
    if (calls->absent[0] != '\0' || cudnn_fits(plan->ops) != COD_OK)
        return;
    if (!tuner->cudnn_tried) {
        tuner->cudnn_tried = true;
        if (cudnn_open(calls, &tuner->cudnn) != COD_OK)
            cod_log_warn("cuda: goes on without cuDNN: %s", cod_error_message());
    }
    if (tuner->cudnn == nullptr)
        return;
    if (shape_of(plan, key, &shape) != COD_OK) {
        cod_log_debug("cuda: no engine of cuDNN for %s: %s", cod_op_kind_name(plan->ops[0].kind), cod_error_message());
        return;
    }
    for (int i = 0; i < shape->count; i++)
        cuda_candidates_add(list, shape->engines[i].name, {make_by_engine, shape, i});
}

#endif
