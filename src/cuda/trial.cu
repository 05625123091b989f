/* Trials: a candidate's results compared with another's, and its time. */
#include "cuda/tuner.cuh"

#include "cuda/view.cuh"

extern "C" {
#include "core/log.h"
}

#include <cstdlib>
#include <cstring>

enum { WARM_UPS = 3, RUNS = 10, REPLAYS = 3 };

/** What the inputs hold when results are compared: numbers alone, or one NaN. */
enum trial_inputs { NUMBERS, POISONED };

/* Tensors. */

static constexpr size_t SLOTS = static_cast<size_t>(COD_OP_MAX_INPUTS) + COD_OP_MAX_OUTPUTS;

static bool is_output(size_t place)
{
    return place % SLOTS >= COD_OP_MAX_INPUTS;
}

static cod_view *view_at(cuda_trial *trial, size_t place)
{
    cod_op *op = &trial->ops[place / SLOTS];
    return is_output(place) ? &op->outputs[place % SLOTS - COD_OP_MAX_INPUTS] : &op->inputs[place % SLOTS];
}

/** Whether two views are one tensor: what one op of several gives to another. */
static bool is_same(const cuda_trial *trial, const unsigned char *const *tensors, size_t a, size_t b)
{
    return a == b || (trial->count > 1 && tensors[a] != nullptr && tensors[a] == tensors[b]);
}

/** Whether the view is written, by its op or another one. */
static bool is_written(const cuda_trial *trial, const unsigned char *const *tensors, size_t place)
{
    for (size_t i = 0; i < trial->count * SLOTS; i++)
        if (is_output(i) && is_same(trial, tensors, i, place))
            return true;
    return false;
}

/** Gives a tensor a place in the trial's buffer, to the same multiple of 256 bytes as the plan's own address. */
static void place_tensor(cuda_trial *trial, const unsigned char *const *tensors, size_t place)
{
    enum { BOUNDARY = 256 };
    const size_t odd = reinterpret_cast<uintptr_t>(tensors[place]) % BOUNDARY,
                 bytes = cod_view_span_bytes(view_at(trial, place));
    for (size_t i = place; i < trial->count * SLOTS; i++) {
        if (!is_same(trial, tensors, i, place))
            continue;
        view_at(trial, i)->buffer = &trial->buffer.base;
        view_at(trial, i)->offset = trial->bytes + odd;
    }
    trial->bytes += (odd + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
}

/** What is only read comes first. */
static void lay_out(cuda_trial *trial)
{
    const unsigned char *tensors[CUDA_TRIAL_OPS * SLOTS] = {};
    const size_t places = trial->count * SLOTS;
    for (size_t i = 0; i < places; i++)
        if (view_at(trial, i)->buffer != nullptr)
            tensors[i] = cuda_view_of(view_at(trial, i)).data;
    for (int written = 0; written < 2; written++) {
        if (written == 1)
            trial->outputs = trial->bytes;
        for (size_t i = 0; i < places; i++)
            if (tensors[i] != nullptr && view_at(trial, i)->buffer != &trial->buffer.base &&
                is_written(trial, tensors, i) == (written == 1))
                place_tensor(trial, tensors, i);
    }
}

/**
 * Words whose halves are bf16 and which are f32 themselves, all of about ±0.25 to ±0.5. Times depend a little on
 * values: zeros take less power.
 */
__global__ void trial_fill_kernel(uint32_t *words, int64_t count)
{
    for (int64_t i = grid_first(); i < count; i += grid_step()) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        bits = (bits ^ bits >> 13) * 3266489917u;
        bits ^= bits >> 16;
        words[i] = 0x3E803E80u | (bits & 0x807F807Fu);
    }
}

/** NaN in the first element of the first input: it has to reach the same results. */
__global__ void trial_poison_kernel(cuda_view view)
{
    view_store(view, 0, 0, NAN);
}

static cod_status fill(const cuda_trial *trial, trial_inputs inputs)
{
    const int64_t words = static_cast<int64_t>(trial->bytes / 4);
    COD_TRY(cuda_launch(trial->stream, trial_fill_kernel, cuda_blocks(trial->device, words), CUDA_THREADS, 0,
                        static_cast<uint32_t *>(trial->buffer.memory), words));
    if (inputs == NUMBERS)
        return COD_OK;
    return cuda_launch(trial->stream, trial_poison_kernel, 1, WARP_LANES, 0, cuda_view_of(&trial->ops[0].inputs[0]));
}

/** Of what a comparison finds, in floats; blocks that compare. */
static constexpr int DIFFERENCES = 3, COMPARING_BLOCKS = 1024;

/**
 * How far views are apart, by blocks: the largest difference, the largest value, and elements of which one alone is
 * NaN.
 */
__global__ void trial_compare_kernel(cuda_view expected, cuda_view actual, float *differences)
{
    float difference = 0, largest = 0, odd = 0;
    for (int64_t i = grid_first(); i < actual.count; i += grid_step()) {
        const int64_t pixel = i / actual.channels;
        const int channel = (int)(i - pixel * actual.channels);
        const float a = view_load(expected, pixel, channel), b = view_load(actual, pixel, channel);
        if (a != a || b != b) {
            odd += (a != a) != (b != b) ? 1.0f : 0.0f;
            continue;
        }
        difference = fmaxf(difference, fabsf(a - b));
        largest = fmaxf(largest, fabsf(a));
    }
    difference = warp_max(difference);
    largest = warp_max(largest);
    odd = warp_sum(odd);
    if (threadIdx.x == 0) {
        float *out = differences + (int64_t)blockIdx.x * DIFFERENCES;
        out[0] = difference;
        out[1] = largest;
        out[2] = odd;
    }
}

cod_status cuda_trial_init(cuda_trial *trial, const cod_plan *plan)
{
    void *differences = nullptr;
    *trial = {};
    trial->device = plan->device;
    COD_REQUIRE(plan->count <= CUDA_TRIAL_OPS, "%zu ops are too many for a trial", plan->count);
    trial->count = plan->count;
    for (size_t i = 0; i < trial->count; i++) {
        trial->ops[i] = plan->ops[i];
        trial->ops[i].name = "trial";
    }
    lay_out(trial);
    COD_TRY(cuda_memory_create(plan->device, trial->bytes, &trial->buffer.memory));
    trial->buffer.base.bytes = trial->bytes;
    COD_TRY(cuda_memory_create(plan->device, COMPARING_BLOCKS * DIFFERENCES * sizeof(float), &differences));
    trial->differences = static_cast<float *>(differences);
    COD_TRY(COD_CUDA(cudaStreamCreateWithFlags(&trial->stream, cudaStreamNonBlocking)));
    COD_TRY(COD_CUDA(cudaEventCreateWithFlags(&trial->begin, 0)));
    COD_TRY(COD_CUDA(cudaEventCreateWithFlags(&trial->end, 0)));
    /* What is under way would count as a candidate's time. (Not all of the device: another thread may be recording.) */
    return COD_CUDA(cudaStreamSynchronize(plan->device->stream));
}

void cuda_trial_clear(cuda_trial *trial)
{
    if (trial->begin != nullptr)
        cudaEventDestroy(trial->begin);
    if (trial->end != nullptr)
        cudaEventDestroy(trial->end);
    if (trial->stream != nullptr)
        cudaStreamDestroy(trial->stream);
    cudaFree(trial->differences);
    for (void *expected : trial->expected)
        cudaFree(expected);
    cudaFree(trial->buffer.memory);
    *trial = {};
}

/* Comparisons. */

/** Keeps the outputs, which candidates to come are compared with. */
static cod_status keep_expected(cuda_trial *trial, trial_inputs inputs)
{
    const size_t bytes = trial->bytes - trial->outputs;
    COD_TRY(cuda_memory_create(trial->device, bytes, &trial->expected[inputs]));
    return COD_CUDA(cudaMemcpyAsync(trial->expected[inputs],
                                    static_cast<unsigned char *>(trial->buffer.memory) + trial->outputs, bytes,
                                    cudaMemcpyDeviceToDevice, trial->stream));
}

/**
 * Says why a candidate is refused. Wrong numbers are somebody's fault, ours or the library's; where a NaN alone goes
 * another way, as in transforms, or where a padding of zeros is not multiplied, the rest is right.
 */
static cod_status refuse(const cuda_trial *trial, trial_inputs inputs, const char *name, float difference,
                         float largest, float odd)
{
    const char *kind = cod_op_kind_name(trial->ops[0].kind);
    if (inputs == NUMBERS)
        cod_log_warn(
            "cuda: %s of %s is not used: its results are not those of our kernels (%g apart where the largest is %g, "
            "%g values NaN in one alone)",
            name, kind, static_cast<double>(difference), static_cast<double>(largest), static_cast<double>(odd));
    else
        cod_log_warn("cuda: %s of %s is not used: a NaN in its input goes elsewhere than in our kernels, whose results "
                     "of numbers it has (%g values NaN in one alone, others up to %g apart)",
                     name, kind, static_cast<double>(odd), static_cast<double>(difference));
    return cod_fail(COD_ERR_UNSUPPORTED, "it gives other results");
}

/** Sums in another order differ by a few roundings of the type, relative to the largest value. */
static cod_status compare_output(const cuda_trial *trial, trial_inputs inputs, const cod_view *output, const char *name)
{
    static const float bf16_tolerance = 1.0f / 64, f32_tolerance = 1e-4f;
    const cuda_view actual = cuda_view_of(output);
    cuda_view expected = actual;
    float found[COMPARING_BLOCKS * DIFFERENCES], difference = 0, largest = 0, odd = 0;
    expected.data = static_cast<unsigned char *>(trial->expected[inputs]) + (output->offset - trial->outputs);
    int64_t blocks = cuda_divide_up(actual.count, WARP_LANES);
    blocks = blocks < COMPARING_BLOCKS ? blocks : COMPARING_BLOCKS;
    COD_TRY(cuda_launch(trial->stream, trial_compare_kernel, static_cast<unsigned>(blocks), WARP_LANES, 0, expected,
                        actual, trial->differences));
    COD_TRY(
        COD_CUDA(cudaMemcpyAsync(found, trial->differences, static_cast<size_t>(blocks) * DIFFERENCES * sizeof(float),
                                 cudaMemcpyDeviceToHost, trial->stream)));
    COD_TRY(COD_CUDA(cudaStreamSynchronize(trial->stream)));
    for (int64_t i = 0; i < blocks; i++) {
        difference = fmaxf(difference, found[i * DIFFERENCES]);
        largest = fmaxf(largest, found[i * DIFFERENCES + 1]);
        odd += found[i * DIFFERENCES + 2];
    }
    if (odd == 0 && difference <= largest * (output->dtype == COD_BF16 ? bf16_tolerance : f32_tolerance))
        return COD_OK;
    return refuse(trial, inputs, name, difference, largest, odd);
}

static cod_status check_outputs(cuda_trial *trial, trial_inputs inputs, const char *name)
{
    if (trial->expected[inputs] == nullptr)
        return keep_expected(trial, inputs);
    for (size_t i = 0; i < trial->count * SLOTS; i++)
        if (is_output(i) && view_at(trial, i)->buffer != nullptr)
            COD_TRY(compare_output(trial, inputs, view_at(trial, i), name));
    return COD_OK;
}

/* Times. */

static cod_status run_plan(const cod_plan *plan, cudaStream_t stream, int runs)
{
    cuda_chain_end(plan->device); /* there were copies, or a capture begins */
    for (int i = 0; i < runs; i++)
        COD_TRY(plan->run(plan, stream));
    return COD_OK;
}

static cod_status time_once(const cuda_trial *trial, cudaGraphExec_t recording, int runs, double *us)
{
    float ms = 0;
    COD_TRY(COD_CUDA(cudaEventRecord(trial->begin, trial->stream)));
    COD_TRY(COD_CUDA(cudaGraphLaunch(recording, trial->stream)));
    COD_TRY(COD_CUDA(cudaEventRecord(trial->end, trial->stream)));
    COD_TRY(COD_CUDA(cudaEventSynchronize(trial->end)));
    COD_TRY(COD_CUDA(cudaEventElapsedTime(&ms, trial->begin, trial->end)));
    *us = 1e3 * static_cast<double>(ms) / runs;
    return COD_OK;
}

/** A recording of some runs. Where a run fails, the stream is whole again. */
static cod_status record(const cuda_trial *trial, const cod_plan *plan, int runs, cudaGraphExec_t *out)
{
    cudaGraph_t graph = nullptr;
    COD_TRY(COD_CUDA(cudaStreamBeginCapture(trial->stream, cudaStreamCaptureModeThreadLocal)));
    const cod_status ran = run_plan(plan, trial->stream, runs);
    cod_status status = COD_CUDA(cudaStreamEndCapture(trial->stream, &graph));
    if (ran == COD_OK && status == COD_OK)
        status = COD_CUDA(cudaGraphInstantiate(out, graph, 0));
    if (graph != nullptr)
        cudaGraphDestroy(graph);
    return ran != COD_OK ? ran : status;
}

/** One replay of a single run tells whether the candidate has a chance; then ten are recorded. */
static cod_status time_plan(const cuda_trial *trial, const cod_plan *plan, double best_us, double *us)
{
    static const double hopeless = 3, margin_us = 20;
    for (int runs = 1; runs <= RUNS; runs += RUNS - 1) {
        cudaGraphExec_t recording = nullptr;
        double taken = 0, least = 1e30;
        COD_TRY(record(trial, plan, runs, &recording));
        cod_status status = COD_OK;
        for (int i = 0; i < REPLAYS && status == COD_OK; i++) {
            status = time_once(trial, recording, runs, &taken);
            least = taken < least ? taken : least;
        }
        cudaGraphExecDestroy(recording);
        COD_TRY(status);
        *us = least;
        if (least > hopeless * best_us + margin_us)
            break;
    }
    return COD_OK;
}

/** Runs the plan on fresh tensors, and compares. */
static cod_status check_plan(cuda_trial *trial, trial_inputs inputs, const char *name, cod_plan *plan)
{
    COD_TRY(fill(trial, inputs));
    COD_TRY(cuda_pack_plans(&plan, 1, false, trial->stream));
    COD_TRY(run_plan(plan, trial->stream, 1));
    COD_TRY(COD_CUDA(cudaStreamSynchronize(trial->stream)));
    return check_outputs(trial, inputs, name);
}

static cod_status try_plan(cuda_trial *trial, const cuda_candidate *candidate, const char *name, cod_plan *plan,
                           double best_us, double *us)
{
    COD_TRY(candidate->make(plan, candidate));
    COD_TRY(check_plan(trial, NUMBERS, name, plan));
    COD_TRY(check_plan(trial, POISONED, name, plan));
    COD_TRY(run_plan(plan, trial->stream, WARM_UPS - 1));
    return time_plan(trial, plan, best_us, us);
}

cod_status cuda_trial_time(cuda_trial *trial, const cuda_candidate *candidate, const char *name, double best_us,
                           double *us)
{
    cod_plan plan = {};
    plan.device = trial->device;
    plan.ops = trial->ops;
    plan.count = trial->count;
    cod_status status = try_plan(trial, candidate, name, &plan, best_us, us);
    const cudaError_t error = cudaStreamSynchronize(trial->stream);
    cuda_plan_clear(&plan);
    cuda_chain_end(trial->device); /* another stream may be at the same address later */
    if (error != cudaSuccess) /* such as an illegal address, after which the process can do nothing more on the GPU */
        return cod_fail(COD_ERR_BACKEND,
                        "CUDA: %s; COD_CUDA_CONVOLUTION=own does without libraries, fixed without trials",
                        cudaGetErrorString(error));
    if (status != COD_OK && status != COD_ERR_UNSUPPORTED)
        status = cod_fail_prefix(COD_ERR_UNSUPPORTED, "it cannot be run here");
    return status;
}
