#include "cuda/library.cuh"

#ifdef COD_HAVE_CUDNN
#include "cuda/cudnn.cuh"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* Engines and their settings. */

static cod_status get(const cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values)
{
    return COD_CUDNN(bag->calls, cudnnBackendGetAttribute(descriptor, name, type, room, count, values));
}

/** A note that speaks against an engine. */
static bool is_unwanted(cudnnBackendNumericalNote_t note, cod_dtype dtype)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* of f32: TF32 */
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return dtype == COD_F32;
    default:
        return false;
    }
}

/** Reads the engine's number. @return *usable: whether it has no note that speaks against it */
static cod_status inspect_engine(cudnn_bag *bag, cudnnBackendDescriptor_t config, cod_dtype dtype, int64_t *number,
                                 bool *usable)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, noted = 0;
    cudnnBackendDescriptor_t engine = cudnn_create(bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    COD_TRY(bag->status);
    COD_TRY(get(bag, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
    COD_TRY(get(bag, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number));
    COD_TRY(get(bag, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &noted, notes));
    *usable = true;
    for (int64_t i = 0; i < noted && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        *usable &= !is_unwanted(notes[i], dtype);
    return COD_OK;
}

/**
 * "cudnn-e6-k3:1-k7:2", or "cudnn-b16-e6-k3:1-k7:2". A name too long for the room is refused: it would not tell
 * engines apart.
 */
static cod_status name_engine(cudnn_bag *bag, cudnnBackendDescriptor_t config, int64_t number, bool rounded_bias,
                              char *name)
{
    enum { MOST_KNOBS = 64 };
    cudnnBackendDescriptor_t knobs[MOST_KNOBS];
    int64_t count = 0, got = 0;
    for (int i = 0; i < MOST_KNOBS; i++)
        knobs[i] = cudnn_create(bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    COD_TRY(bag->status);
    COD_TRY(
        get(bag, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS, &count, knobs));
    int length = snprintf(name, CUDA_NAME_BYTES, "cudnn%s-e%" PRId64, rounded_bias ? "-b16" : "", number);
    for (int64_t i = 0; i < count && i < MOST_KNOBS && length < CUDA_NAME_BYTES; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = 0;
        COD_TRY(get(bag, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type));
        COD_TRY(get(bag, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value));
        length += snprintf(name + length, CUDA_NAME_BYTES - static_cast<size_t>(length), "-k%d:%" PRId64,
                           static_cast<int>(type), value);
    }
    return length < CUDA_NAME_BYTES ? COD_OK
                                    : cod_fail(COD_ERR_UNSUPPORTED, "an engine of cuDNN has too many settings");
}

static bool is_listed(const cudnn_shape *shape, const char *name)
{
    for (int i = 0; i < shape->count; i++)
        if (strcmp(shape->engines[i].name, name) == 0)
            return true;
    return false;
}

/** An engine that cannot be asked is left out. */
static void add_engine(cudnn_shape *shape, cudnnBackendDescriptor_t config, cod_dtype dtype, bool rounded_bias)
{
    int64_t number = 0;
    bool usable = false;
    cudnn_engine *engine = &shape->engines[shape->count];
    cudnn_bag knobs = {shape->bag.calls, nullptr, 0, 0, COD_OK};
    *engine = {};
    engine->rounded_bias = rounded_bias;
    if (inspect_engine(&knobs, config, dtype, &number, &usable) == COD_OK && usable &&
        name_engine(&knobs, config, number, rounded_bias, engine->name) == COD_OK && !is_listed(shape, engine->name)) {
        engine->config = config;
        shape->count++;
    }
    cudnn_bag_clear(&knobs);
}

/* Lists of engines. */

static void set_target(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, const cudnn_target *target,
                       cudnnBackendAttributeName_t handle, cudnnBackendAttributeName_t properties)
{
    if (target->handle != nullptr)
        cudnn_set(bag, descriptor, handle, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else
        cudnn_set(bag, descriptor, properties, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
}

/** A mode that knows nothing of the op is no failure. */
static void add_mode(cudnn_shape *shape, const cudnn_target *target, cudnnBackendDescriptor_t graph,
                     cudnnBackendHeurMode_t mode, cod_dtype dtype, bool rounded_bias)
{
    cudnn_bag *bag = &shape->bag;
    cudnnBackendDescriptor_t configs[CUDNN_ENGINES_PER_MODE];
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristics = cudnn_create(bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnn_set(bag, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    cudnn_set(bag, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->handle == nullptr)
        cudnn_set(bag, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &target->properties);
    cudnn_finalize(bag, heuristics, "heuristics");
    for (int i = 0; i < CUDNN_ENGINES_PER_MODE; i++)
        configs[i] = cudnn_create(bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    COD_THEN(bag->status, get(bag, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              CUDNN_ENGINES_PER_MODE, &count, configs));
    for (int64_t i = 0; bag->status == COD_OK && i < count && i < CUDNN_ENGINES_PER_MODE; i++)
        add_engine(shape, configs[i], dtype, rounded_bias);
    bag->status = COD_OK;
}

static bool is_found(const cudnn_shape *shape, const char *wanted)
{
    return wanted != nullptr && is_listed(shape, wanted);
}

/** The engines of one form of the op, until the wanted one is among them. */
static cod_status list_engines(cudnn_shape *shape, const cudnn_target *target, const cod_op *op, const char *wanted,
                               bool rounded_bias)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    static_assert(2 * sizeof modes / sizeof modes[0] * CUDNN_ENGINES_PER_MODE <= CUDNN_MOST_ENGINES, "all have room");
    cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS];
    cudnn_bag *bag = &shape->bag;
    const int count = cudnn_describe(bag, op, rounded_bias, operations);
    COD_TRY(bag->status);
    cudnnBackendDescriptor_t graph = cudnn_create(bag, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnn_set(bag, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
    if (target->handle != nullptr)
        cudnn_set(bag, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    cudnn_finalize(bag, graph, "graph of operations");
    COD_TRY(bag->status);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && !is_found(shape, wanted); i++)
        add_mode(shape, target, graph, modes[i], op->inputs[0].dtype, rounded_bias);
    return COD_OK;
}

cod_status cudnn_shape_create(const cudnn_calls *calls, const cudnn_target *target, const cod_op *op, const char *key,
                              const char *wanted, cudnn_shape **out)
{
    COD_TRY(cudnn_fits(op));
    cudnn_shape *shape = static_cast<cudnn_shape *>(calloc(1, sizeof *shape));
    COD_REQUIRE_MEMORY(shape);
    snprintf(shape->key, sizeof shape->key, "%s", key);
    shape->bag.calls = calls;
    const bool biased = op->kind == COD_OP_CONV2D && op->inputs[2].buffer != nullptr;
    const cod_status status = list_engines(shape, target, op, wanted, false);
    if (status == COD_OK && biased && op->inputs[0].dtype == COD_BF16 && !is_found(shape, wanted) &&
        list_engines(shape, target, op, wanted, true) != COD_OK)
        shape->bag.status = COD_OK; /* there is the other form */
    if (status != COD_OK) {
        cudnn_shape_destroy(shape);
        return status;
    }
    *out = shape;
    return COD_OK;
}

void cudnn_shape_destroy(cudnn_shape *shape)
{
    if (shape == nullptr)
        return;
    for (int i = 0; i < shape->count; i++)
        if (shape->engines[i].plan != nullptr)
            shape->bag.calls->cudnnBackendDestroyDescriptor(shape->engines[i].plan);
    cudnn_bag_clear(&shape->bag);
    free(shape);
}

cod_status cudnn_engine_build(cudnn_shape *shape, const cudnn_target *target, int number)
{
    cudnn_engine *engine = &shape->engines[number];
    if (engine->plan != nullptr)
        return COD_OK;
    cudnn_bag bag = {shape->bag.calls, nullptr, 0, 0, COD_OK};
    int64_t count = 0;
    cudnnBackendDescriptor_t plan = cudnn_create(&bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_target(&bag, plan, target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    cudnn_set(&bag, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine->config);
    cudnn_finalize(&bag, plan, "plan");
    COD_THEN(bag.status, get(&bag, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                             &engine->workspace_bytes));
    const cod_status status = bag.status;
    if (status == COD_OK) {
        engine->plan = plan;
        bag.count = 0; /* it is the engine's now */
    }
    cudnn_bag_clear(&bag);
    return status;
}

#endif
