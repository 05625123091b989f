#include "cuda/library.cuh"

#ifdef COD_HAVE_CUDNN
#include "cuda/cudnn.cuh"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* Engines and their settings. */

enum { MOST_KNOBS = 64 };

/* What names begin with, those of engines with a bias in bf16 with the second. */
#define ANY_BIAS     "cudnn-e"
#define ROUNDED_BIAS "cudnn-b16-e"

static cod_status get(const cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values)
{
    return COD_CUDNN(bag->calls, cudnnBackendGetAttribute(descriptor, name, type, room, count, values));
}

/** The rule by which a note speaks against an engine; CUDNN_TAKEN = it does not. */
static cudnn_rule rule_of(cudnnBackendNumericalNote_t note, cod_dtype dtype)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return CUDNN_NOT_DETERMINISTIC;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return CUDNN_SHORT_SUMS;
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return CUDNN_TRANSFORMS;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* of f32: TF32 */
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return dtype == COD_F32 ? CUDNN_ROUNDS_F32 : CUDNN_TAKEN;
    default:
        return CUDNN_TAKEN;
    }
}

/** Reads the engine's number. @param[out] rule  the first that speaks against it, or CUDNN_TAKEN */
static cod_status inspect_engine(cudnn_bag *bag, cudnnBackendDescriptor_t config, cod_dtype dtype, int64_t *number,
                                 cudnn_rule *rule)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, noted = 0;
    cudnnBackendDescriptor_t engine = cudnn_create(bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    COD_TRY(bag->status);
    COD_TRY(get(bag, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
    COD_TRY(get(bag, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number));
    COD_TRY(get(bag, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &noted, notes));
    *rule = CUDNN_TAKEN;
    for (int64_t i = 0; i < noted && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && *rule == CUDNN_TAKEN; i++)
        *rule = rule_of(notes[i], dtype);
    return COD_OK;
}

/**
 * "cudnn-e6-k3:1-k7:2", or "cudnn-b16-e6-k3:1-k7:2". A name too long for the room is refused: it would not tell
 * engines apart.
 */
static cod_status name_engine(cudnn_bag *bag, cudnnBackendDescriptor_t config, int64_t number, bool rounded_bias,
                              char *name)
{
    cudnnBackendDescriptor_t knobs[MOST_KNOBS];
    int64_t count = 0, got = 0;
    for (int i = 0; i < MOST_KNOBS; i++)
        knobs[i] = cudnn_create(bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    COD_TRY(bag->status);
    COD_TRY(
        get(bag, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS, &count, knobs));
    int length = snprintf(name, CUDA_NAME_BYTES, "%s%" PRId64, rounded_bias ? ROUNDED_BIAS : ANY_BIAS, number);
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
    cudnn_rule rule = CUDNN_UNREADABLE;
    cudnn_engine *engine = &shape->engines[shape->count];
    cudnn_bag knobs = {shape->bag.calls, nullptr, 0, 0, COD_OK};
    *engine = {};
    engine->rounded_bias = rounded_bias;
    engine->config = config;
    if (inspect_engine(&knobs, config, dtype, &number, &rule) != COD_OK ||
        name_engine(&knobs, config, number, rounded_bias, engine->name) != COD_OK)
        rule = CUDNN_UNREADABLE;
    else if (rule == CUDNN_TAKEN && is_listed(shape, engine->name))
        rule = CUDNN_LISTED_BEFORE;
    shape->offered[rule]++;
    shape->count += rule == CUDNN_TAKEN ? 1 : 0;
    cudnn_bag_clear(&knobs);
}

void cudnn_shape_describe(const cudnn_shape *shape, char *text, size_t bytes)
{
    static const char *const words[CUDNN_RULES] = {
        "taken",         "listed before",   "cannot be asked", "not deterministic", "with sums of less than f32",
        "by transforms", "with f32 rounded"};
    int all = 0;
    for (int count : shape->offered)
        all += count;
    size_t length = static_cast<size_t>(snprintf(text, bytes, "%d engines", all));
    for (int rule = 0; rule < CUDNN_RULES && length < bytes; rule++)
        if (rule == CUDNN_TAKEN || shape->offered[rule] > 0)
            length += static_cast<size_t>(snprintf(text + length, bytes - length, "%s %d %s", rule == 0 ? ":" : ",",
                                                   shape->offered[rule], words[rule]));
}

/* An engine of a name. */

/** The number behind `word`, where the text goes on with it; moves past both. */
static bool read_number(const char **text, const char *word, int64_t *number)
{
    char *end = nullptr;
    const size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0 || (*text)[length] < '0' || (*text)[length] > '9')
        return false;
    *number = strtoll(*text + length, &end, 10);
    *text = end;
    return true;
}

static cudnnBackendDescriptor_t knob_choice(cudnn_bag *bag, int64_t knob, int64_t value)
{
    const cudnnBackendKnobType_t type = static_cast<cudnnBackendKnobType_t>(knob);
    cudnnBackendDescriptor_t out = cudnn_create(bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    cudnn_set(bag, out, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    cudnn_set(bag, out, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    cudnn_finalize(bag, out, "setting of an engine");
    return out;
}

/** Makes the engine that name_engine() gave this name, and lists it. */
static cod_status add_named(cudnn_shape *shape, const cudnn_target *target, cudnnBackendDescriptor_t graph,
                            const char *name, bool rounded_bias)
{
    cudnn_bag *bag = &shape->bag;
    cudnnBackendDescriptor_t knobs[MOST_KNOBS];
    const char *text = name;
    int64_t number = 0, knob = 0, value = 0, count = 0;
    if (!read_number(&text, rounded_bias ? ROUNDED_BIAS : ANY_BIAS, &number))
        return cod_fail(COD_ERR_UNSUPPORTED, "'%s' is no engine's name", name);
    cudnnBackendDescriptor_t engine = cudnn_create(bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnn_set(bag, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    cudnn_set(bag, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    if (target->handle == nullptr)
        cudnn_set(bag, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
    cudnn_finalize(bag, engine, "engine");
    while (count < MOST_KNOBS && read_number(&text, "-k", &knob)) {
        if (!read_number(&text, ":", &value))
            return cod_fail(COD_ERR_UNSUPPORTED, "'%s' is no engine's name", name);
        knobs[count++] = knob_choice(bag, knob, value);
    }
    cudnnBackendDescriptor_t config = cudnn_create(bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnn_set(bag, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (count > 0)
        cudnn_set(bag, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, knobs);
    cudnn_finalize(bag, config, "settings of an engine");
    COD_TRY(bag->status);
    if (*text != '\0')
        return cod_fail(COD_ERR_UNSUPPORTED, "'%s' is no engine's name", name);
    cudnn_engine *added = &shape->engines[shape->count++];
    *added = {};
    snprintf(added->name, sizeof added->name, "%s", name);
    added->rounded_bias = rounded_bias;
    added->config = config;
    return COD_OK;
}

/* Lists of engines. */

void cudnn_set_target(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, const cudnn_target *target,
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

static cod_status make_graph(cudnn_bag *bag, const cudnn_target *target, const cod_op *op, bool rounded_bias,
                             cudnnBackendDescriptor_t *graph)
{
    cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS];
    const int count = cudnn_describe(bag, op, rounded_bias, operations);
    COD_TRY(bag->status);
    *graph = cudnn_create(bag, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnn_set(bag, *graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
    if (target->handle != nullptr)
        cudnn_set(bag, *graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    cudnn_finalize(bag, *graph, "graph of operations");
    return bag->status;
}

/** The engines of one form of the op. */
static cod_status list_form(cudnn_shape *shape, const cudnn_target *target, const cod_op *op, bool rounded_bias)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    static_assert(2 * sizeof modes / sizeof modes[0] * CUDNN_ENGINES_PER_MODE <= CUDNN_MOST_ENGINES, "all have room");
    cudnnBackendDescriptor_t graph = nullptr;
    COD_TRY(make_graph(&shape->bag, target, op, rounded_bias, &graph));
    for (const cudnnBackendHeurMode_t mode : modes)
        add_mode(shape, target, graph, mode, op->inputs[0].dtype, rounded_bias);
    return COD_OK;
}

static cod_status list_engines(cudnn_shape *shape, const cudnn_target *target, const cod_op *op)
{
    const bool biased = op->kind == COD_OP_CONV2D && op->inputs[2].buffer != nullptr;
    const cod_status status = list_form(shape, target, op, false);
    if (status == COD_OK && biased && op->inputs[0].dtype == COD_BF16 && list_form(shape, target, op, true) != COD_OK)
        shape->bag.status = COD_OK; /* there is the other form */
    return status;
}

/** The engine of this name alone; false where this cuDNN cannot make it, and then the list is empty. */
static bool list_wanted(cudnn_shape *shape, const cudnn_target *target, const cod_op *op, const char *wanted)
{
    const bool rounded_bias = strncmp(wanted, ROUNDED_BIAS, strlen(ROUNDED_BIAS)) == 0;
    cudnnBackendDescriptor_t graph = nullptr;
    cod_status status = make_graph(&shape->bag, target, op, rounded_bias, &graph);
    COD_THEN(status, add_named(shape, target, graph, wanted, rounded_bias));
    shape->bag.status = COD_OK;
    return status == COD_OK;
}

cod_status cudnn_shape_create(const cudnn_calls *calls, const cudnn_target *target, const cod_op *op, const char *key,
                              const char *wanted, cudnn_shape **out)
{
    COD_TRY(cudnn_fits(op));
    cudnn_shape *shape = static_cast<cudnn_shape *>(calloc(1, sizeof *shape));
    COD_REQUIRE_MEMORY(shape);
    snprintf(shape->key, sizeof shape->key, "%s", key);
    shape->bag.calls = calls;
    const cod_status status =
        wanted != nullptr && list_wanted(shape, target, op, wanted) ? COD_OK : list_engines(shape, target, op);
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
    for (int i = 0; i < shape->count; i++) {
        if (shape->engines[i].plan != nullptr)
            shape->bag.calls->cudnnBackendDestroyDescriptor(shape->engines[i].plan);
        free(shape->engines[i].built);
    }
    cudnn_bag_clear(&shape->bag);
    free(shape);
}

#endif
