/* Plans of 3x3 convolutions that shuffle pixels, with an activation behind them, by products of warpgroups. */
#include "cuda/conv3_plan.cuh"
#include "cuda/conv_plan.cuh"

/** Outputs: so that places within a tile of the picture are ints. */
enum { MOST_OUTPUTS = 256, CHANNELS_AT_ONCE = 16 };

/** None, or one that is linear on either side of zero. */
static bool fits_activation(cod_activation kind)
{
    return kind == COD_ACT_NONE || kind == COD_ACT_RELU || kind == COD_ACT_PRELU || kind == COD_ACT_LEAKY_RELU;
}

/** The picture, which a lane writes by 8 bytes. */
static bool fits_picture(const cod_view *view)
{
    return view->dtype == COD_BF16 && cod_view_is_dense(view) && view->shape.c % CHANNELS_AT_ONCE == 0 &&
           reinterpret_cast<uintptr_t>(cuda_view_of(view).data) % 16 == 0;
}

static bool fits(const cod_op *op)
{
    const cod_op_attr *attr = &op->attr;
    const cod_view *x = &op->inputs[0], *w = &op->inputs[1], *activated = &op->outputs[CONV_ACTIVATED];
    return op->kind == COD_OP_CONV2D && cod_op_shuffle(attr) > 1 && attr->int8_range <= 0 &&
           op->inputs[4].buffer == nullptr && fits_activation(attr->activation) && w->dtype == COD_F32 &&
           w->shape.h == 3 && w->shape.w == 3 && w->shape.n <= MOST_OUTPUTS && attr->stride_h == 1 &&
           attr->stride_w == 1 && attr->pad_h == 1 && attr->pad_w == 1 && conv3_fits_tensor(x) &&
           reinterpret_cast<uintptr_t>(cuda_view_of(x).data) % 16 == 0 && fits_picture(&op->outputs[0]) &&
           (activated->buffer == nullptr || fits_picture(activated));
}

static bool choose(const cod_plan *plan, conv3_choice *best)
{
    *best = {};
    if (!fits(plan->ops))
        return false;
    best->store = CONV3_SHUFFLE;
    conv3_describe_shapes(&plan->ops->inputs[0], plan->ops->inputs[1].shape.n, &best->work);
    return conv3_choose(plan->device, CONV3_BY_WGMMA, best);
}

bool conv3_shuffled_fits(const cod_plan *plan)
{
    conv3_choice choice;
    return choose(plan, &choice);
}

/** Where there is a tile for each group of a block, which reads all of its weights before its first product. */
bool conv3_shuffled_is_better(const cod_plan *plan)
{
    conv3_choice choice;
    if (!choose(plan, &choice))
        return false;
    const int blocks = conv3_blocks(plan->device, &choice.work, &choice.kernel);
    return choice.work.tiles >= blocks * choice.kernel.most_groups[CONV3_SHUFFLE];
}

/** What goes into an activation is written where it has a tensor of its own. */
static void describe_store(const cod_op *op, conv3_work *work)
{
    conv3_store *store = &work->store;
    unsigned char *y = cuda_view_of(&op->outputs[0]).data;
    const bool activates = op->attr.activation != COD_ACT_NONE, apart = op->outputs[CONV_ACTIVATED].buffer != nullptr;
    store->bias = cuda_floats_of(&op->inputs[2]);
    store->activation = cuda_activation_of(&op->attr, &op->inputs[CONV_SLOPE]);
    store->target = activates && !apart ? nullptr : y;
    if (activates)
        store->activated = apart ? cuda_view_of(&op->outputs[CONV_ACTIVATED]).data : y;
    store->factor = static_cast<int>(cod_op_shuffle(&op->attr));
    store->across = work->outputs / store->factor;
}

cod_status conv3_shuffled_make(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    conv3_choice choice;
    COD_REQUIRE(choose(plan, &choice), "there is no kernel for this convolution by warpgroups");
    choice.work.load.kind = CONV3_AS_IS;
    choice.work.load.first = cuda_view_of(&op->inputs[0]).data;
    describe_store(op, &choice.work);
    const conv3_filter filter = {&op->inputs[1], choice.work.store.factor, false};
    return conv3_make(plan, &choice, &filter);
}
