/* Plans of linear layers on cuBLASLt. */
#include "cuda/tuner.cuh"

#ifndef COD_HAVE_CUBLASLT

void cublaslt_candidates(const cod_plan *, cuda_candidates *) {}
void cublaslt_close(cuda_cublaslt *) {}

#else
#include "cuda/conv_library.cuh"
#include "cuda/conv_plan.cuh"
#include "cuda/cublaslt.cuh"
#include "cuda/gate.cuh"

extern "C" {
#include "core/log.h"
}

#include <cstdio>
#include <cstdlib>
#include <cstring>

enum { MOST_ALGORITHMS = 12 };

/** An algorithm that was listed for an op. */
struct linear_algorithm {
    linear_algorithm *next;
    char name[CUDA_NAME_BYTES];
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
};

struct cuda_cublaslt {
    const cublaslt_calls *calls;
    cublasLtHandle_t handle;
    linear_algorithm *algorithms; /**< of all ops: candidates point at them */
};

struct linear_state {
    linear_product product;
    linear_descriptors descriptors;
    cublasLtMatmulAlgo_t algorithm;
    void *workspace;
    size_t workspace_bytes;
    library_parts parts;
    cuda_gate gate; /**< of a product that is gated */
};

static cuda_cublaslt *cublaslt_of(const cod_device *device)
{
    return device->tuner->cublaslt;
}

static cod_status cublaslt_open(const cublaslt_calls *calls, cuda_cublaslt **out)
{
    cuda_cublaslt *cublaslt = static_cast<cuda_cublaslt *>(calloc(1, sizeof *cublaslt));
    COD_REQUIRE_MEMORY(cublaslt);
    cublaslt->calls = calls;
    const cod_status status = COD_CUBLASLT(calls, cublasLtCreate(&cublaslt->handle));
    if (status != COD_OK)
        free(cublaslt);
    else
        *out = cublaslt;
    return status;
}

void cublaslt_close(cuda_cublaslt *cublaslt)
{
    if (cublaslt == nullptr)
        return;
    while (cublaslt->algorithms != nullptr) {
        linear_algorithm *next = cublaslt->algorithms->next;
        free(cublaslt->algorithms);
        cublaslt->algorithms = next;
    }
    cublaslt->calls->cublasLtDestroy(cublaslt->handle);
    free(cublaslt);
}

/* Running. */

static cod_status state_run(const cod_plan *plan, cudaStream_t stream)
{
    const linear_state *state = static_cast<const linear_state *>(plan->state);
    const cuda_cublaslt *cublaslt = cublaslt_of(plan->device);
    const linear_product *p = &state->product;
    const linear_descriptors *of = &state->descriptors;
    const float alpha = 1, beta = p->accumulate ? 1.0f : 0.0f;
    void *d = const_cast<void *>(p->d.data);
    if (p->mask != nullptr)
        COD_TRY(cuda_gate_mask(plan->device, state->gate, stream));
    cuda_chain_end(plan->device); /* the library may do more than launch kernels */
    COD_TRY(COD_CUBLASLT(cublaslt->calls, cublasLtMatmul(cublaslt->handle, of->operation, &alpha, p->a.data, of->a,
                                                         p->b.data, of->b, &beta, d, of->d, d, of->d, &state->algorithm,
                                                         state->workspace, state->workspace_bytes, stream)));
    if (p->gated && p->mask == nullptr)
        COD_TRY(cuda_gate_apply(plan->device, state->gate, stream));
    return library_bias_run(plan->device, state->parts.gradient, stream);
}

static void state_clear(const cod_plan *plan)
{
    linear_state *state = static_cast<linear_state *>(plan->state);
    linear_descriptors_destroy(cublaslt_of(plan->device)->calls, &state->descriptors);
}

/* Making. */

/**
 * The numbers of candidates: whether what an op has beside its product, ReLU's gradient of a data gradient or the bias
 * gradient beside a weight gradient, is done by our kernels behind the library's product or by the product's epilogue.
 */
enum { REST_BEHIND, REST_INSIDE };

/** Its mask, where the library reads one, lies in front of the workspace. @return bytes of the mask */
static size_t describe_gate(const cod_op *op, bool inside, linear_state *state)
{
    const bool leaky = op->attr.activation == COD_ACT_LEAKY_RELU;
    if (!state->product.gated)
        return 0;
    state->gate = cuda_gate_of(&op->inputs[CONV_GATE], &op->outputs[0], leaky ? op->attr.leak : 0);
    state->product.mask_leading = state->gate.leading;
    return inside ? (cuda_gate_bytes(state->gate) + 255) / 256 * 256 : 0;
}

static cod_status make_by_algorithm(cod_plan *plan, const cuda_candidate *candidate)
{
    const linear_algorithm *algorithm = static_cast<const linear_algorithm *>(candidate->source);
    COD_TRY(cuda_plan_state(plan, sizeof(linear_state)));
    linear_state *state = static_cast<linear_state *>(plan->state);
    plan->clear = state_clear;
    COD_TRY(linear_describe(plan->ops, &state->product));
    state->algorithm = algorithm->algorithm;
    state->workspace_bytes = algorithm->workspace_bytes;
    const cod_op *op = plan->ops;
    const bool inside = candidate->number == REST_INSIDE;
    state->product.sums_bias = inside && state->product.bias_gradient != nullptr;
    state->parts.library_sums = state->product.sums_bias;
    const size_t mask = describe_gate(op, inside, state);
    COD_TRY(library_parts_create(plan, mask + state->workspace_bytes, state->product.packed ? &op->inputs[1] : nullptr,
                                 state->product.rounded_bias ? &op->inputs[2] : nullptr, &state->parts));
    state->workspace =
        state->workspace_bytes > 0 ? static_cast<unsigned char *>(state->parts.workspace) + mask : nullptr;
    if (mask > 0)
        state->product.mask = state->gate.bits = static_cast<unsigned char *>(state->parts.workspace);
    if (state->product.packed)
        state->product.a.data = state->parts.weights;
    const void *bias = state->parts.bias;
    COD_TRY(linear_descriptors_create(cublaslt_of(plan->device)->calls, &state->product,
                                      bias != nullptr ? bias : state->product.bias, &state->descriptors));
    plan->run = state_run;
    return COD_OK;
}

/* Lists of algorithms. */

template <typename T>
static cod_status prefer(const cublaslt_calls *calls, cublasLtMatmulPreference_t preference,
                         cublasLtMatmulPreferenceAttributes_t attribute, T value)
{
    return COD_CUBLASLT(calls, cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

/** The largest power of two up to 256 that divides the address; what is packed lies at such a boundary. */
static uint32_t alignment_of(const void *data)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(data) | 256;
    return static_cast<uint32_t>(address & (~address + 1));
}

/** Sums that are split are added in f32 and in order. */
static cod_status set_preference(const cublaslt_calls *calls, const linear_product *product, size_t workspace_bytes,
                                 cublasLtMatmulPreference_t preference)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    COD_TRY(
        prefer(calls, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes)));
    COD_TRY(prefer(calls, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes));
    COD_TRY(prefer(calls, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product->a.data)));
    COD_TRY(prefer(calls, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product->b.data)));
    COD_TRY(prefer(calls, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product->d.data)));
    return prefer(calls, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product->d.data));
}

static cod_status ask_heuristics(const cuda_tuner *tuner, const linear_product *product,
                                 cublasLtMatmulHeuristicResult_t *results, int *count)
{
    const cuda_cublaslt *cublaslt = tuner->cublaslt;
    const cublaslt_calls *calls = cublaslt->calls;
    linear_descriptors of;
    cublasLtMatmulPreference_t preference = nullptr;
    const void *bias = product->bias; /* where it is rounded only its alignment differs */
    COD_TRY(linear_descriptors_create(calls, product, bias, &of));
    cod_status status = COD_CUBLASLT(calls, cublasLtMatmulPreferenceCreate(&preference));
    COD_THEN(status, set_preference(calls, product, tuner->workspace_bytes, preference));
    COD_THEN(status,
             COD_CUBLASLT(calls, cublasLtMatmulAlgoGetHeuristic(cublaslt->handle, of.operation, of.a, of.b, of.d, of.d,
                                                                preference, MOST_ALGORITHMS, results, count)));
    if (preference != nullptr)
        calls->cublasLtMatmulPreferenceDestroy(preference);
    linear_descriptors_destroy(calls, &of);
    return status;
}

/** What the names of a product's algorithms begin with. */
static const char *family_of(const linear_product *product)
{
    return product->mask != nullptr ? "cublaslt-drelu" : product->sums_bias ? "cublaslt-bgradb" : "cublaslt";
}

/**
 * "cublaslt-66-20-35-1-0-0-0-2", or "cublaslt-drelu-66-…": the settings that make an algorithm, as in the next table.
 */
static cod_status name_algorithm(const cublaslt_calls *calls, const cublasLtMatmulAlgo_t *algorithm, const char *family,
                                 char *name)
{
    static const struct {
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_ALGO_CONFIG_ID, 4},
        {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
        {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
        {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
        {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
        {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
    };
    int length = snprintf(name, CUDA_NAME_BYTES, "%s", family);
    for (const auto &setting : settings) {
        uint32_t value = 0; /* of little-endian machines: two bytes land in its low half */
        size_t written = 0;
        COD_TRY(COD_CUBLASLT(calls, cublasLtMatmulAlgoConfigGetAttribute(algorithm, setting.attribute, &value,
                                                                         setting.bytes, &written)));
        length += snprintf(name + length, CUDA_NAME_BYTES - static_cast<size_t>(length), "-%u", value);
    }
    return COD_OK;
}

/** NULL where memory is short or the algorithm cannot be named: then it is no candidate. */
static linear_algorithm *keep_algorithm(cuda_cublaslt *cublaslt, const cublasLtMatmulHeuristicResult_t *result,
                                        const char *family)
{
    linear_algorithm *kept = static_cast<linear_algorithm *>(calloc(1, sizeof *kept));
    if (kept == nullptr || name_algorithm(cublaslt->calls, &result->algo, family, kept->name) != COD_OK) {
        free(kept);
        return nullptr;
    }
    kept->algorithm = result->algo;
    kept->workspace_bytes = result->workspaceSize;
    kept->next = cublaslt->algorithms;
    cublaslt->algorithms = kept;
    return kept;
}

static void add_algorithms(const cod_plan *plan, const linear_product *product, int number, cuda_candidates *list)
{
    cuda_tuner *tuner = plan->device->tuner;
    cublasLtMatmulHeuristicResult_t results[MOST_ALGORITHMS];
    int count = 0;
    if (ask_heuristics(tuner, product, results, &count) != COD_OK) {
        cod_log_debug("cuda: no algorithm of cuBLASLt for %s: %s", cod_op_kind_name(plan->ops[0].kind),
                      cod_error_message());
        return;
    }
    for (int i = 0; i < count; i++) {
        linear_algorithm *kept = results[i].state == CUBLAS_STATUS_SUCCESS
                                     ? keep_algorithm(tuner->cublaslt, &results[i], family_of(product))
                                     : nullptr;
        if (kept != nullptr)
            cuda_candidates_add(list, kept->name, {make_by_algorithm, kept, number});
    }
}

void cublaslt_candidates(const cod_plan *plan, cuda_candidates *list)
{
    static const unsigned char *const aligned =
        reinterpret_cast<const unsigned char *>(256); /* what a mask's address is like */
    cuda_tuner *tuner = plan->device->tuner;
    const cublaslt_calls *calls = cublaslt_library();
    linear_product product;
    if (calls->absent[0] != '\0' || linear_describe(plan->ops, &product) != COD_OK)
        return;
    if (!tuner->cublaslt_tried) {
        tuner->cublaslt_tried = true;
        if (cublaslt_open(calls, &tuner->cublaslt) != COD_OK)
            cod_log_warn("cuda: goes on without cuBLASLt: %s", cod_error_message());
    }
    if (tuner->cublaslt == nullptr)
        return;
    add_algorithms(plan, &product, REST_BEHIND, list);
    product.sums_bias = product.bias_gradient != nullptr;
    if (product.gated && plan->ops[0].attr.activation == COD_ACT_RELU) {
        product.mask = aligned;
        product.mask_leading = cuda_gate_of(&plan->ops[0].inputs[CONV_GATE], &plan->ops[0].outputs[0], 0).leading;
    }
    if (product.sums_bias || product.mask != nullptr)
        add_algorithms(plan, &product, REST_INSIDE, list);
}

#endif
