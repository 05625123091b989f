#include "ref/ref.h"

#include "core/fused.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "ref/ref_internal.h"

#include <stdlib.h>
#include <string.h>

struct cod_device {
    double *scratch; /**< room for the largest plan's arrays; plans run one after the other */
    size_t scratch_count;
};

struct cod_plan {
    cod_device *device;
    size_t count;
    cod_op ops[]; /**< [count], run in this order */
};

static ref_kernel *const kernels[COD_OP_KIND_COUNT] = {
    [COD_OP_CONV2D] = ref_conv2d,
    [COD_OP_CONV2D_BACKWARD_DATA] = ref_conv2d_backward_data,
    [COD_OP_CONV2D_BACKWARD_WEIGHTS] = ref_conv2d_backward_weights,
    [COD_OP_LINEAR] = ref_linear,
    [COD_OP_LINEAR_BACKWARD_DATA] = ref_linear_backward_data,
    [COD_OP_LINEAR_BACKWARD_WEIGHTS] = ref_linear_backward_weights,
    [COD_OP_NORM_INFERENCE] = ref_norm_inference,
    [COD_OP_NORM_BACKWARD] = ref_norm_backward,
    [COD_OP_NORM_INFERENCE_BACKWARD] = ref_norm_inference_backward,
    [COD_OP_NORM_STATISTICS] = ref_norm_statistics,
    [COD_OP_NORM_APPLY] = ref_norm_apply,
    [COD_OP_NORM_BACKWARD_REDUCE] = ref_norm_backward_reduce,
    [COD_OP_NORM_BACKWARD_APPLY] = ref_norm_backward_apply,
    [COD_OP_FOLD_NORM] = ref_fold_norm,
    [COD_OP_ACTIVATION] = ref_activation,
    [COD_OP_ACTIVATION_BACKWARD] = ref_activation_backward,
    [COD_OP_ADD] = ref_add,
    [COD_OP_MEAN] = ref_mean,
    [COD_OP_PIXEL_SHUFFLE] = ref_pixel_shuffle,
    [COD_OP_PIXEL_UNSHUFFLE] = ref_pixel_unshuffle,
    [COD_OP_RESIZE] = ref_resize,
    [COD_OP_RESIZE_BACKWARD] = ref_resize_backward,
    [COD_OP_POOL] = ref_pool,
    [COD_OP_POOL_BACKWARD] = ref_pool_backward,
    [COD_OP_LOSS] = ref_loss,
    [COD_OP_GRAD_NORM] = ref_grad_norm,
    [COD_OP_OPTIMISER] = ref_optimiser,
    [COD_OP_EMA] = ref_ema,
    [COD_OP_FILL] = ref_fill,
    [COD_OP_TURN] = ref_turn,
    [COD_OP_MIX] = ref_mix,
    [COD_OP_SPECTRAL_NORM] = ref_spectral_norm,
    [COD_OP_SPECTRAL_NORM_BACKWARD] = ref_spectral_norm_backward,
};

static ref_direct_kernel *const direct_kernels[COD_OP_KIND_COUNT] = {
    [COD_OP_QUANTISE] = ref_quantise,
    [COD_OP_DEQUANTISE] = ref_dequantise,
    [COD_OP_MAGNITUDES] = ref_magnitudes,
    [COD_OP_RANGES] = ref_ranges,
};

static cod_status device_open(const cod_device_options *options, cod_device **out)
{
    (void)options;
    cod_device *device = calloc(1, sizeof *device);
    COD_REQUIRE_MEMORY(device);
    *out = device;
    return COD_OK;
}

static void device_close(cod_device *device)
{
    if (device == NULL)
        return;
    cod_aligned_free(device->scratch);
    free(device);
}

static const char *device_describe(cod_device *device)
{
    (void)device;
    return "plain C, sums in double, one thread";
}

/** Every type is as slow as the others; here it only matters that they may be used. */
static bool device_supports(cod_device *device, cod_dtype activation)
{
    (void)device;
    return activation == COD_F32 || activation == COD_F64 || activation == COD_BF16 || activation == COD_S8 ||
           activation == COD_U8;
}

/** Numbers of workspace that the op's kernel needs beside its arrays. */
static int64_t workspace_count(const cod_op *op)
{
    int64_t count;
    const bool shuffled = op->attr.factor > 1;
    switch (op->kind) {
    case COD_OP_CONV2D:
        count = shuffled ? cod_shape_count(op->outputs[0].shape) : 0; /* y before its pixels are shuffled */
        if (op->attr.int8_range > 0) /* integers of w, w transposed, factors, integers of x */
            return count + 2 * cod_shape_count(op->inputs[1].shape) + op->inputs[1].shape.n +
                   cod_shape_count(op->inputs[0].shape);
        return count + cod_shape_count(op->inputs[1].shape); /* w transposed */
    case COD_OP_CONV2D_BACKWARD_DATA:
        return shuffled ? cod_shape_count(op->inputs[0].shape) : 0;
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
        return shuffled ? cod_shape_count(op->inputs[1].shape) : 0;
    case COD_OP_LINEAR:
        return cod_shape_count(op->inputs[1].shape);
    case COD_OP_NORM_INFERENCE:
        return op->inputs[0].shape.c; /* inv_std */
    case COD_OP_LOSS:
        return 2 * cod_shape_count(op->inputs[0].shape) + 2 * op->inputs[0].shape.c; /* gradients, two rows of log p */
    case COD_OP_MIX:
        return 2 * op->inputs[0].shape.c; /* two rows of log p */
    default:
        return 0;
    }
}

static size_t scratch_count(const cod_op *op)
{
    int64_t count = workspace_count(op);
    if (direct_kernels[op->kind] != NULL)
        return 0;
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
        count += op->inputs[i].buffer ? cod_shape_count(op->inputs[i].shape) : 0;
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        count += op->outputs[i].buffer ? cod_shape_count(op->outputs[i].shape) : 0;
    return (size_t)count;
}

/**
 * Moving it is safe because plans read the device's pointer when they run: nothing here is recorded with its address.
 */
static cod_status scratch_reserve(cod_device *device, size_t count)
{
    if (count <= device->scratch_count)
        return COD_OK;
    void *scratch = NULL;
    COD_TRY(cod_aligned_alloc(&scratch, count * sizeof(double)));
    cod_aligned_free(device->scratch);
    device->scratch = scratch;
    device->scratch_count = count;
    return COD_OK;
}

static cod_status op_supported(const cod_op *op)
{
    COD_TRY(cod_op_check(op));
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer != NULL && !ref_dtype_known(view->dtype))
            return cod_fail(COD_ERR_UNSUPPORTED, "ref: %s '%s': no support for %s", cod_op_kind_name(op->kind),
                            op->name ? op->name : "", cod_dtype_name(view->dtype));
    }
    if (op->kind == COD_OP_OPTIMISER) {
        const bool needs_v = op->attr.optimiser != COD_OPT_SGD, needs_m = needs_v || op->attr.momentum != 0;
        COD_REQUIRE((op->outputs[1].buffer || !needs_m) && (op->outputs[2].buffer || !needs_v),
                    "optimiser '%s': a moment is missing", op->name ? op->name : "");
    }
    return COD_OK;
}

static cod_status make_plan(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    for (size_t i = 0; i < count; i++) {
        COD_TRY(op_supported(&ops[i]));
        COD_TRY(scratch_reserve(device, scratch_count(&ops[i])));
    }
    cod_plan *plan = malloc(sizeof *plan + count * sizeof plan->ops[0]);
    COD_REQUIRE_MEMORY(plan);
    plan->device = device;
    plan->count = count;
    memcpy(plan->ops, ops, count * sizeof *ops);
    *out = plan;
    return COD_OK;
}

static cod_status plan_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    return make_plan(device, op, 1, out);
}

static size_t op_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    (void)device;
    return cod_fused_sequence(ops, count).count;
}

static cod_status plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    COD_REQUIRE(count > 0 && op_fuses(device, ops, count) == count,
                "ref: %zu ops from %s '%s' on cannot be one plan; op_fuses() says how many can", count,
                count > 0 ? cod_op_kind_name(ops[0].kind) : "none", count > 0 && ops[0].name ? ops[0].name : "");
    return make_plan(device, ops, count, out);
}

static cod_status plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    (void)device, (void)plans, (void)count, (void)queue;
    return COD_OK;
}

static cod_status run_op(const cod_device *device, const cod_op *op);

/** The average of an OPTIMISER, behind the rest of it: of the parameters as they were rounded when they were stored. */
static cod_status run_average(const cod_device *device, const cod_op *op)
{
    const cod_view *scalars = &op->inputs[1];
    const size_t decay = scalars->offset + 3 * cod_dtype_bytes(scalars->dtype);
    const cod_op ema = {
        .kind = COD_OP_EMA,
        .inputs = {op->outputs[0], cod_view_dense(scalars->buffer, decay, scalars->dtype, (cod_shape){1, 1, 1, 1})},
        .outputs = {op->outputs[3]},
        .name = op->name};
    return run_op(device, &ema);
}

/** Both halves, one after the other: y is made of the statistics as they were rounded when they were stored. */
static cod_status run_norm_train(const cod_device *device, const cod_op *op)
{
    const cod_view *in = op->inputs, *out = op->outputs;
    const cod_op statistics = {.kind = COD_OP_NORM_STATISTICS,
                               .attr = op->attr,
                               .inputs = {in[0]},
                               .outputs = {out[1], out[2], out[3], out[4]},
                               .name = op->name};
    const cod_op apply = {.kind = COD_OP_NORM_APPLY,
                          .attr = op->attr,
                          .inputs = {in[0], in[1], in[2], out[1], out[2], in[3], in[4]},
                          .outputs = {out[0]},
                          .name = op->name};
    COD_TRY(run_op(device, &statistics));
    return run_op(device, &apply);
}

static cod_status run_op(const cod_device *device, const cod_op *op)
{
    ref_args args = {.attr = &op->attr};
    double *free_scratch = device->scratch;
    if (direct_kernels[op->kind] != NULL) {
        direct_kernels[op->kind](op);
        return COD_OK;
    }
    if (op->kind == COD_OP_NORM_TRAIN)
        return run_norm_train(device, op);
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++) {
        const cod_view *view = &op->inputs[i];
        if (view->buffer == NULL)
            continue;
        ref_load(view, free_scratch);
        args.in[i] = free_scratch;
        args.in_shape[i] = view->shape;
        free_scratch += cod_shape_count(view->shape);
    }
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = &op->outputs[i];
        if (view->buffer == NULL)
            continue;
        if (cod_op_output_role(op->kind, i) == COD_OUTPUT_UPDATED)
            ref_load(view, free_scratch);
        args.out[i] = free_scratch;
        args.out_shape[i] = view->shape;
        free_scratch += cod_shape_count(view->shape);
    }
    args.workspace = free_scratch;
    const cod_status status = kernels[op->kind](&args);
    if (status != COD_OK)
        return cod_fail_prefix(status, "%s '%s'", cod_op_kind_name(op->kind), op->name ? op->name : "");
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        if (args.out[i] != NULL)
            ref_store(&op->outputs[i], args.out[i],
                      op->accumulate && cod_op_output_role(op->kind, i) == COD_OUTPUT_ACCUMULATED);
    return op->kind == COD_OP_OPTIMISER && args.out[3] != NULL ? run_average(device, op) : COD_OK;
}

static cod_status plan_run(cod_plan *plan, cod_queue *queue)
{
    (void)queue;
    for (size_t i = 0; i < plan->count; i++)
        COD_TRY(run_op(plan->device, &plan->ops[i]));
    return COD_OK;
}

static void plan_destroy(cod_plan *plan)
{
    free(plan);
}

const cod_backend cod_ref_backend = {
    .version = COD_BACKEND_VERSION,
    .name = "ref",
    .open = device_open,
    .close = device_close,
    .describe = device_describe,
    .supports = device_supports,
    COD_HOST_MEMORY,
    .plan_create = plan_create,
    .op_fuses = op_fuses,
    .plan_create_fused = plan_create_fused,
    .plans_prepare = plans_prepare,
    .plan_run = plan_run,
    .plan_destroy = plan_destroy,
};
