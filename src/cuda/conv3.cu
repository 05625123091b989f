/* Plans of 3x3 convolutions with normalisations around them: which ops, which kernel, which tiles. */
#include "cuda/conv3_plan.cuh"
#include "cuda/tuner.cuh"

extern "C" {
#include "core/fused.h"
}

#include <climits>
#include <cstdio>

/** The ops of a sequence; NULL = absent. */
struct conv3_ops {
    const cod_op *apply, *conv, *reduce;
};

/* Which ops. */

/** Those that are linear on either side of zero; a gradient's side must be known from z alone. */
static bool fits_activation(const cod_op_attr *attr)
{
    return attr->activation == COD_ACT_NONE || attr->activation == COD_ACT_RELU || attr->activation == COD_ACT_PRELU ||
           (attr->activation == COD_ACT_LEAKY_RELU && attr->leak >= 0);
}

static bool fits_conv(const cod_op *op)
{
    const bool backward = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_op_attr *attr = &op->attr;
    const cod_shape w = op->inputs[1].shape;
    if (op->kind != COD_OP_CONV2D && !backward)
        return false;
    if (w.h != 3 || w.w != 3 || attr->stride_h != 1 || attr->stride_w != 1 || attr->pad_h != 1 || attr->pad_w != 1 ||
        cod_op_shuffle(attr) > 1 || op->inputs[1].dtype != COD_F32)
        return false;
    if (!backward && (attr->activation != COD_ACT_NONE || attr->int8_range > 0 || op->inputs[4].buffer != nullptr))
        return false;
    return conv3_fits_tensor(&op->inputs[0]) && conv3_fits_tensor(&op->outputs[0]) &&
           !cod_view_equal(&op->inputs[0], &op->outputs[0]);
}

/**
 * A normalisation, or its gradient, whose output the convolution reads. Neighbours' pixels are read, so nothing is in
 * place.
 */
static bool fits_apply(const cod_op *op, const cod_op *conv)
{
    const bool backward = conv->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_view *y = &op->outputs[0], *second = &op->inputs[backward ? 1 : 6];
    if ((backward && op->accumulate) || !conv3_fits_tensor(&op->inputs[0]) || cod_view_equal(y, &op->inputs[0]))
        return false;
    if (second->buffer != nullptr && (!conv3_fits_tensor(second) || cod_view_equal(y, second)))
        return false;
    return backward || fits_activation(&op->attr);
}

/** What is summed over the convolution's output. */
static bool fits_reduce(const cod_op *op, const cod_op *conv)
{
    const cod_view *y = &conv->outputs[0];
    if (conv->kind == COD_OP_CONV2D)
        return op->kind == COD_OP_NORM_STATISTICS;
    const cod_view *x = &op->inputs[0], *g = &op->outputs[0];
    return op->kind == COD_OP_NORM_BACKWARD_REDUCE && conv3_fits_tensor(x) && !cod_view_equal(x, y) &&
           (g->buffer == nullptr || (conv3_fits_tensor(g) && !cod_view_equal(g, x))) && fits_activation(&op->attr);
}

/** The longest sequence from the first op on that kernels may know. @return its ops; below 2 = none */
static size_t read_ops(const cod_op *ops, size_t count, conv3_ops *out)
{
    const cod_fused found = cod_fused_sequence(ops, count);
    *out = {found.before, found.product, found.after};
    if (found.count < 2 || !fits_conv(out->conv) || (out->apply != nullptr && !fits_apply(out->apply, out->conv)))
        return 0;
    if (out->reduce != nullptr && !fits_reduce(out->reduce, out->conv)) {
        out->reduce = nullptr;
        return found.count - 1;
    }
    return found.count;
}

static conv3_store_kind store_kind_of(const conv3_ops *ops)
{
    if (ops->reduce == nullptr)
        return CONV3_STORE;
    return ops->reduce->kind == COD_OP_NORM_STATISTICS ? CONV3_STATISTICS : CONV3_REDUCE;
}

/** By the cost model. @return false where no kernel's weights and tile fit a block's shared memory */
static bool choose(const cod_device *device, const conv3_ops *ops, conv3_by by, conv3_choice *best)
{
    *best = {};
    best->store = store_kind_of(ops);
    conv3_describe_shapes(&ops->conv->inputs[0], ops->conv->outputs[0].shape.c, &best->work);
    return conv3_choose(device, by, best);
}

size_t cuda_conv3_fuses(const cod_device *device, const cod_op *ops, size_t count)
{
    conv3_ops found;
    conv3_choice choice;
    const size_t used = read_ops(ops, count, &found);
    return used > 1 && choose(device, &found, CONV3_BY_ALL, &choice) ? used : 1;
}

/* Plans. */

static unsigned char *bytes_of(const cod_view *view)
{
    return cuda_view_of(view).data;
}

static void describe_load(const conv3_ops *ops, conv3_work *work)
{
    conv3_load *load = &work->load;
    const cod_op *op = ops->apply;
    load->pixels = static_cast<float>(work->images) * static_cast<float>(work->h) * static_cast<float>(work->w);
    if (op == nullptr) {
        load->kind = CONV3_AS_IS;
        load->first = bytes_of(&ops->conv->inputs[0]);
        return;
    }
    const bool backward = op->kind == COD_OP_NORM_BACKWARD_APPLY;
    load->kind = backward ? CONV3_NORMALISE_BACKWARD : CONV3_NORMALISE;
    load->first = bytes_of(&op->inputs[backward ? 1 : 0]);
    load->second = bytes_of(&op->inputs[backward ? 0 : 6]);
    load->kept = bytes_of(&op->outputs[0]);
    load->gamma = cuda_floats_of(&op->inputs[backward ? 2 : 1]);
    load->beta = backward ? nullptr : cuda_floats_of(&op->inputs[2]);
    load->mean = cuda_floats_of(&op->inputs[3]);
    load->inv_std = cuda_floats_of(&op->inputs[4]);
    if (backward)
        load->sums = cuda_floats_of(&op->inputs[5]);
    else
        load->activation = cuda_activation_of(&op->attr, &op->inputs[5]);
}

static void describe_reduce(const cod_op *op, conv3_store *store)
{
    store->x = bytes_of(&op->inputs[0]);
    store->gamma = cuda_floats_of(&op->inputs[2]);
    store->beta = cuda_floats_of(&op->inputs[3]);
    store->mean = cuda_floats_of(&op->inputs[4]);
    store->inv_std = cuda_floats_of(&op->inputs[5]);
    store->activation = cuda_activation_of(&op->attr, &op->inputs[6]);
    store->g = bytes_of(&op->outputs[0]);
    store->sums = cuda_floats_of(&op->outputs[1]);
    store->dgamma = cuda_floats_of(&op->outputs[2]);
    store->dbeta = cuda_floats_of(&op->outputs[3]);
    store->dslope = cuda_floats_of(&op->outputs[4]);
    store->dslope_by_channel = store->dslope != nullptr && cod_shape_count(op->outputs[4].shape) > 1;
    store->accumulate = op->accumulate;
    if (store->g == store->target) /* in place: g alone is written */
        store->target = nullptr;
}

static void describe_store(const conv3_ops *ops, conv3_work *work)
{
    conv3_store *store = &work->store;
    const cod_op *op = ops->reduce;
    store->target = bytes_of(&ops->conv->outputs[0]);
    if (ops->conv->kind == COD_OP_CONV2D)
        store->bias = cuda_floats_of(&ops->conv->inputs[2]);
    else if (ops->conv->accumulate)
        store->before = store->target;
    if (op == nullptr)
        return;
    if (op->kind == COD_OP_NORM_BACKWARD_REDUCE) {
        describe_reduce(op, store);
        return;
    }
    store->statistics = cuda_statistics_of(&op->attr, op->outputs);
}

static cod_status make_by(cod_plan *plan, conv3_by by)
{
    conv3_ops ops;
    conv3_choice choice;
    COD_REQUIRE(read_ops(plan->ops, plan->count, &ops) == plan->count && choose(plan->device, &ops, by, &choice),
                "there is no kernel for these ops together");
    describe_load(&ops, &choice.work);
    describe_store(&ops, &choice.work);
    const conv3_filter filter = {&ops.conv->inputs[1], 1, ops.conv->kind == COD_OP_CONV2D_BACKWARD_DATA};
    return conv3_make(plan, &choice, &filter);
}

static cod_status make_candidate(cod_plan *plan, const cuda_candidate *candidate)
{
    return make_by(plan, static_cast<conv3_by>(candidate->number));
}

/** What the time of the ops' kernels depends on. */
static void describe_key(const cod_device *device, const conv3_ops *ops, const conv3_choice *choice, char *key,
                         size_t bytes)
{
    conv3_work work = choice->work;
    describe_load(ops, &work);
    describe_store(ops, &work);
    snprintf(key, bytes, "3x3 convolution %dx%dx%dx%d to %d; load %d%s%s; store %d%s%s%s%s; own kernels; %s",
             work.images, work.h, work.w, work.channels, work.outputs, static_cast<int>(work.load.kind),
             work.load.second != nullptr ? " two" : "", work.load.kept != nullptr ? " kept" : "",
             static_cast<int>(choice->store), work.store.target != nullptr ? " target" : "",
             work.store.before != nullptr ? " added" : "", work.store.g != nullptr ? " g" : "",
             work.store.dslope != nullptr ? " slope" : "", device->gpu);
}

/** By mma.sync or by wgmma, whichever is faster when both are timed; by the cost model where nothing is timed. */
cod_status cuda_make_conv3(cod_plan *plan)
{
    conv3_ops ops;
    conv3_choice by_mma, by_wgmma;
    char key[CUDA_KEY_BYTES];
    cuda_tuner *tuner = nullptr;
    cuda_candidates list = {};
    if (cuda_tuner_mode(plan) == CUDA_MODE_FIXED || read_ops(plan->ops, plan->count, &ops) != plan->count ||
        !choose(plan->device, &ops, CONV3_BY_MMA, &by_mma) || !choose(plan->device, &ops, CONV3_BY_WGMMA, &by_wgmma))
        return make_by(plan, CONV3_BY_ALL);
    COD_TRY(cuda_tuner_of(plan->device, &tuner));
    describe_key(plan->device, &ops, &by_mma, key, sizeof key);
    cuda_candidates_add(&list, "own-mma", {make_candidate, nullptr, CONV3_BY_MMA});
    cuda_candidates_add(&list, "own-wgmma", {make_candidate, nullptr, CONV3_BY_WGMMA});
    return cuda_tuner_make(plan, key, &list);
}
