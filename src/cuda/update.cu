#include "cuda/update.cuh"

#include "cuda/launches.cuh"
#include "cuda/rounded.cuh"
#include "cuda/sums.cuh"

/* What runs over flat f32 buffers: gradient norm, optimisers, moving averages. */

enum { BLOCKS_A_PROCESSOR = 16, SUM_BLOCKS_A_PROCESSOR = 2, LANES = UPDATE_LANES };

update_walk cuda_update_walk_of(const float *const (&arrays)[UPDATE_ARRAYS], int64_t count, int64_t most_blocks)
{
    update_walk walk = {};
    int64_t head = 0;
    bool alike = true;
    for (int i = 0; i < UPDATE_ARRAYS; i++) {
        const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(arrays[i]) % 16 / sizeof(float));
        if (arrays[i] == nullptr)
            continue;
        alike = alike && (i == 0 || head == (LANES - past) % LANES);
        head = (LANES - past) % LANES;
    }
    walk.count = count;
    walk.head = alike && head < count ? head : count;
    walk.vectors = (count - walk.head) / LANES;
    const int64_t work = walk.vectors > 0 ? walk.vectors + 2 * LANES : count;
    const int64_t needed = cuda_divide_up(work, UPDATE_THREADS);
    walk.blocks = static_cast<unsigned>(needed < most_blocks ? needed : most_blocks);
    return walk;
}

static __device__ __forceinline__ void read4(const float *array, int64_t at, float (&out)[LANES])
{
    uint32_t words[LANES];
    read16(words, reinterpret_cast<const unsigned char *>(array + at));
#pragma unroll
    for (int i = 0; i < LANES; i++)
        out[i] = f32_from_word(words[i]);
}

static __device__ __forceinline__ void write4(float *array, int64_t at, const float (&values)[LANES])
{
    uint32_t words[LANES];
#pragma unroll
    for (int i = 0; i < LANES; i++)
        words[i] = word_from_f32(values[i]);
    write16(reinterpret_cast<unsigned char *>(array + at), words);
}

struct optimiser_work {
    update_walk walk;
    const float *grad, *scalars, *norm;
    float *param, *m, *v, *average; /**< all but param: NULL where the optimiser has none */
    const float *state;             /**< [state_count], copied to average_state */
    float *average_state;
    int64_t state_count;
    const rounded_list *rounded; /**< of the device: copies in bf16 that are to follow the parameters */
    cod_optimiser_kind kind;
    float beta1, beta2, decay, epsilon, momentum, max_norm;
    bool nesterov;
};

/** What does not depend on the element. */
struct optimiser_step {
    float lr, correction1, root_correction2, keep, scale;
    int copies; /**< in the list; it changes between runs, also between those of one recording */
};

static __device__ __forceinline__ optimiser_step step_of(const optimiser_work &work)
{
    optimiser_step step;
    step.lr = work.scalars[0];
    step.correction1 = work.scalars[1];
    step.root_correction2 = sqrtf(work.scalars[2]);
    step.keep = work.scalars[3];
    step.copies = work.rounded->count;
    step.scale = 1;
    if (work.norm != NULL && work.max_norm > 0) {
        const float ratio = work.max_norm / (work.norm[0] + 1e-6f);
        step.scale = ratio > 1 ? 1 : ratio; /* NaN must not pass for a norm within bounds */
    }
    return step;
}

static __device__ __forceinline__ void sgd(const optimiser_work &work, const optimiser_step &step, float grad,
                                           float &param, float &m)
{
    const float g = step.scale * grad + work.decay * param;
    float move = g;
    if (work.m != NULL) {
        m = work.momentum * m + g;
        move = work.nesterov ? g + work.momentum * m : m;
    }
    param -= step.lr * move;
}

static __device__ __forceinline__ void adam(const optimiser_work &work, const optimiser_step &step, float grad,
                                            float &param, float &m, float &v)
{
    const bool decoupled = work.kind == COD_OPT_ADAMW;
    const float g = step.scale * grad + (decoupled ? 0 : work.decay * param);
    m = work.beta1 * m + (1 - work.beta1) * g;
    v = work.beta2 * v + (1 - work.beta2) * g * g;
    if (decoupled)
        param -= step.lr * work.decay * param;
    param -= step.lr * (m / step.correction1) / (sqrtf(v) / step.root_correction2 + work.epsilon);
}

static __device__ __forceinline__ void move(const optimiser_work &work, const optimiser_step &step, float grad,
                                            float &param, float &m, float &v)
{
    if (work.kind == COD_OPT_SGD)
        sgd(work, step, grad, param, m);
    else
        adam(work, step, grad, param, m, v);
}

static __device__ __forceinline__ float averaged(float keep, float average, float param)
{
    return exact_sum(exact_product(keep, average), exact_product(1 - keep, param)); /* the same bits in both kernels */
}

static __device__ __forceinline__ void average_vector(float *array, int64_t at, float keep, const float (&param)[LANES])
{
    float average[LANES];
    read4(array, at, average);
#pragma unroll
    for (int i = 0; i < LANES; i++)
        average[i] = averaged(keep, average[i], param[i]);
    write4(array, at, average);
}

static __device__ __forceinline__ void round_element(const optimiser_work &work, const optimiser_step &step, int64_t at,
                                                     float param)
{
    const float *place = work.param + at;
    const int copy = rounded_find(work.rounded, step.copies, place);
    if (copy < step.copies && work.rounded->copies[copy].from <= place)
        work.rounded->copies[copy].to[place - work.rounded->copies[copy].from] = bf16_from_f32(param);
}

struct __align__(8) four_rounded
{
    uint32_t pairs[LANES / 2];
};

static __device__ __forceinline__ void round_vector(const optimiser_work &work, const optimiser_step &step, int64_t at,
                                                    const float (&param)[LANES])
{
    const float *place = work.param + at;
    const int copy = rounded_find(work.rounded, step.copies, place);
    if (copy == step.copies)
        return;
    const rounded_listed found = work.rounded->copies[copy];
    const int64_t first = place - found.from;
    if (first >= 0 && first % LANES == 0 && place + LANES <= found.end) {
        *reinterpret_cast<four_rounded *>(found.to +
                                          first) = {{bf16_pair(param[0], param[1]), bf16_pair(param[2], param[3])}};
        return;
    }
    for (int i = 0; i < LANES; i++) /* copies begin or end within the vector */
        round_element(work, step, at + i, param[i]);
}

static __device__ __forceinline__ void move_vector(const optimiser_work &work, const optimiser_step &step, int64_t at)
{
    float grad[LANES], param[LANES], m[LANES] = {}, v[LANES] = {};
    read4(work.grad, at, grad);
    read4(work.param, at, param);
    if (work.m != NULL)
        read4(work.m, at, m);
    if (work.v != NULL)
        read4(work.v, at, v);
#pragma unroll
    for (int i = 0; i < LANES; i++)
        move(work, step, grad[i], param[i], m[i], v[i]);
    write4(work.param, at, param);
    round_vector(work, step, at, param);
    if (work.m != NULL)
        write4(work.m, at, m);
    if (work.v != NULL)
        write4(work.v, at, v);
    if (work.average != NULL)
        average_vector(work.average, at, step.keep, param);
}

static __device__ __forceinline__ void move_element(const optimiser_work &work, const optimiser_step &step, int64_t at)
{
    float param = work.param[at], m = work.m != NULL ? work.m[at] : 0, v = work.v != NULL ? work.v[at] : 0;
    move(work, step, work.grad[at], param, m, v);
    work.param[at] = param;
    round_element(work, step, at, param);
    if (work.m != NULL)
        work.m[at] = m;
    if (work.v != NULL)
        work.v[at] = v;
    if (work.average != NULL)
        work.average[at] = averaged(step.keep, work.average[at], param);
}

__global__ void __launch_bounds__(UPDATE_THREADS) optimiser_kernel(optimiser_work work)
{
    chain_wait();
    const optimiser_step step = step_of(work);
    for (int64_t i = grid_first(); i < work.walk.vectors; i += grid_step())
        move_vector(work, step, work.walk.head + i * LANES);
    chain_release();
    for (int64_t i = grid_first(); lone_element(work.walk, i) < work.walk.count; i += grid_step())
        move_element(work, step, lone_element(work.walk, i));
    for (int64_t i = grid_first(); i < work.state_count; i += grid_step())
        work.average_state[i] = work.state[i];
}

/** Kernels of this file see arrays of f32. */
static cod_status arrays_check(const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer != nullptr &&
            (view->dtype != COD_F32 ||
             cod_view_span_bytes(view) != sizeof(float) * static_cast<size_t>(cod_shape_count(view->shape))))
            return cod_fail(COD_ERR_UNSUPPORTED, "parameters must be dense f32");
    }
    return COD_OK;
}

cod_status cuda_make_optimiser(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const bool has_v = op->attr.optimiser != COD_OPT_SGD, has_m = has_v || op->attr.momentum != 0;
    COD_REQUIRE(!has_m || op->outputs[1].buffer != nullptr, "this optimiser needs a first moment");
    COD_REQUIRE(!has_v || op->outputs[2].buffer != nullptr, "this optimiser needs a second moment");
    COD_TRY(arrays_check(op));
    optimiser_work work = {};
    COD_TRY(cuda_rounded_list_of(plan->device, &work.rounded));
    work.grad = cuda_floats_of(&op->inputs[0]);
    work.scalars = cuda_floats_of(&op->inputs[1]);
    work.norm = cuda_floats_of(&op->inputs[2]);
    work.param = cuda_floats_of(&op->outputs[0]);
    work.m = has_m ? cuda_floats_of(&op->outputs[1]) : nullptr;
    work.v = has_v ? cuda_floats_of(&op->outputs[2]) : nullptr;
    work.average = cuda_floats_of(&op->outputs[3]);
    work.state = cuda_floats_of(&op->inputs[3]);
    work.average_state = cuda_floats_of(&op->outputs[4]);
    work.state_count = work.state != nullptr ? cod_shape_count(op->inputs[3].shape) : 0;
    work.kind = op->attr.optimiser;
    work.beta1 = op->attr.beta1;
    work.beta2 = op->attr.beta2;
    work.decay = op->attr.weight_decay;
    work.epsilon = op->attr.epsilon;
    work.momentum = op->attr.momentum;
    work.max_norm = op->attr.max_norm;
    work.nesterov = op->attr.nesterov;
    work.walk =
        cuda_update_walk_of({work.grad, work.param, work.m, work.v, work.average}, cod_shape_count(op->inputs[0].shape),
                            static_cast<int64_t>(plan->device->multiprocessors) * BLOCKS_A_PROCESSOR);
    return cuda_plan_launches(plan, work, {{optimiser_kernel, work.walk.blocks, 0, UPDATE_THREADS}});
}

struct ema_work {
    update_walk walk;
    const float *param, *decay;
    float *average;
};

__global__ void __launch_bounds__(UPDATE_THREADS) ema_kernel(ema_work work)
{
    chain_wait();
    const float keep = work.decay[0];
    for (int64_t i = grid_first(); i < work.walk.vectors; i += grid_step()) {
        float param[LANES];
        read4(work.param, work.walk.head + i * LANES, param);
        average_vector(work.average, work.walk.head + i * LANES, keep, param);
    }
    chain_release();
    for (int64_t i = grid_first(); lone_element(work.walk, i) < work.walk.count; i += grid_step()) {
        const int64_t at = lone_element(work.walk, i);
        work.average[at] = averaged(keep, work.average[at], work.param[at]);
    }
}

cod_status cuda_make_ema(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(arrays_check(op));
    ema_work work = {};
    work.param = cuda_floats_of(&op->inputs[0]);
    work.decay = cuda_floats_of(&op->inputs[1]);
    work.average = cuda_floats_of(&op->outputs[0]);
    work.walk = cuda_update_walk_of({work.param, work.average}, cod_shape_count(op->inputs[0].shape),
                                    static_cast<int64_t>(plan->device->multiprocessors) * BLOCKS_A_PROCESSOR);
    return cuda_plan_launches(plan, work, {{ema_kernel, work.walk.blocks, 0, UPDATE_THREADS}});
}

struct grad_norm_work {
    update_walk walk;
    const float *grad;
    float *norm;
    cuda_sums sums;
};

/**
 * Squares of f32 leave its range long before the norm does, so numbers of three sizes are scaled and summed apart:
 * Blue, "A portable Fortran program to find the Euclidean norm of a vector", 1978. All squares lie between 2^-108 and
 * 2^96.
 */
enum { MIDDLE, BIG, SMALL, SIZES };

static __device__ __forceinline__ void add_square(float (&sums)[SIZES], float value)
{
    const float size = fabsf(value);
    const bool big = size >= 0x1p46f, small = size < 0x1p-54f; /* NaN is neither */
    const float b = big ? value * 0x1p-80f : 0, s = small ? value * 0x1p98f : 0, m = big || small ? 0 : value;
    sums[BIG] += b * b;
    sums[SMALL] += s * s;
    sums[MIDDLE] += m * m;
}

static __device__ __forceinline__ float norm_of(const float *sums)
{
    const float middle = sqrtf(sums[MIDDLE]);
    const float outer = hypotf(sqrtf(sums[BIG]) * 0x1p80f, sqrtf(sums[SMALL]) * 0x1p-98f);
    return middle != middle ? middle : hypotf(outer, middle); /* hypotf(infinity, NaN) is infinity */
}

__global__ void __launch_bounds__(UPDATE_THREADS) grad_norm_kernel(grad_norm_work work)
{
    chain_wait();
    float sums[SIZES] = {0, 0, 0};
#pragma unroll 4
    for (int64_t i = grid_first(); i < work.walk.vectors; i += grid_step()) {
        float grad[LANES];
        read4(work.grad, work.walk.head + i * LANES, grad);
#pragma unroll
        for (int lane = 0; lane < LANES; lane++)
            add_square(sums, grad[lane]);
    }
    for (int64_t i = grid_first(); lone_element(work.walk, i) < work.walk.count; i += grid_step())
        add_square(sums, work.grad[lone_element(work.walk, i)]);
    chain_release();
#pragma unroll
    for (int size = 0; size < SIZES; size++) {
        const float sum = block_sum(sums[size]);
        if (threadIdx.x == 0)
            work.sums.partials[blockIdx.x * SIZES + size] = sum;
    }
    if (!block_is_last(work.sums.ticket))
        return;
    grid_totals(work.sums, gridDim.x);
    if (threadIdx.x == 0)
        work.norm[0] = norm_of(work.sums.totals);
}

cod_status cuda_make_grad_norm(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(arrays_check(op));
    grad_norm_work work = {};
    work.grad = cuda_floats_of(&op->inputs[0]);
    work.norm = cuda_floats_of(&op->outputs[0]);
    work.walk = cuda_update_walk_of({work.grad}, cod_shape_count(op->inputs[0].shape),
                                    static_cast<int64_t>(plan->device->multiprocessors) * SUM_BLOCKS_A_PROCESSOR);
    COD_TRY(cuda_sums_create(plan, SIZES, work.walk.blocks, &work.sums));
    return cuda_plan_launches(plan, work,
                              {{grad_norm_kernel, work.walk.blocks, UPDATE_THREADS * sizeof(float), UPDATE_THREADS}});
}
