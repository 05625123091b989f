/* Plans of cuDNN's engines: made in a second or so each where cuDNN compiles a kernel, so several at a time. */
#include "cuda/library.cuh"

#ifdef COD_HAVE_CUDNN
#include "cuda/cudnn.cuh"

extern "C" {
#include "core/trace.h"
}

#include <atomic>
#include <cstdlib>
#include <cstring>

#include <pthread.h>
#include <unistd.h>

enum { MOST_THREADS = 8 };

/** Finalises a plan of which either the engine or the text is set, and gives it to the engine. */
static cod_status finish_plan(cudnn_bag *bag, cudnn_engine *engine, cudnnBackendDescriptor_t plan)
{
    int64_t count = 0;
    cudnn_finalize(bag, plan, "plan");
    COD_THEN(bag->status,
             COD_CUDNN(bag->calls, cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                            CUDNN_TYPE_INT64, 1, &count, &engine->workspace_bytes)));
    const cod_status status = bag->status;
    if (status == COD_OK) {
        engine->plan = plan;
        bag->count = 0; /* it is the engine's now */
    }
    cudnn_bag_clear(bag);
    return status;
}

static cod_status build_from_text(const cudnn_shape *shape, const cudnn_target *target, cudnn_engine *engine)
{
    cudnn_bag bag = {shape->bag.calls, nullptr, 0, 0, COD_OK};
    cudnnBackendDescriptor_t plan = cudnn_create(&bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnn_set_target(&bag, plan, target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    cudnn_set(&bag, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
              static_cast<int64_t>(engine->built_bytes), engine->built);
    return finish_plan(&bag, engine, plan);
}

static cod_status build_from_engine(const cudnn_shape *shape, const cudnn_target *target, cudnn_engine *engine)
{
    cudnn_bag bag = {shape->bag.calls, nullptr, 0, 0, COD_OK};
    cudnnBackendDescriptor_t plan = cudnn_create(&bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnn_set_target(&bag, plan, target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    cudnn_set(&bag, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine->config);
    return finish_plan(&bag, engine, plan);
}

cod_status cudnn_engine_build(cudnn_shape *shape, const cudnn_target *target, int number)
{
    cudnn_engine *engine = &shape->engines[number];
    if (engine->plan != nullptr)
        return COD_OK;
    const bool built = engine->built != nullptr && build_from_text(shape, target, engine) == COD_OK;
    free(engine->built); /* megabytes, where it holds code */
    engine->built = nullptr;
    return built ? COD_OK : build_from_engine(shape, target, engine);
}

/* Several at a time. */

/** What the threads share. */
struct cudnn_building {
    cudnn_shape *shape;
    const cod_op *op;
    const cudnn_target *target;
    int ordinal;
    double end_s;
    std::atomic<int> next;
};

/** The plan of a shape's first engine as text; its end is behind `bytes`. */
static char *text_of(const cudnn_shape *shape, size_t *bytes)
{
    const cudnnBackendDescriptor_t plan = shape->engines[0].plan;
    int64_t count = 0, got = 0;
    if (COD_CUDNN(shape->bag.calls, cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                             CUDNN_TYPE_CHAR, 0, &count, nullptr)) != COD_OK)
        return nullptr;
    char *text = static_cast<char *>(calloc(static_cast<size_t>(count) + 1, 1));
    if (text == nullptr ||
        COD_CUDNN(shape->bag.calls, cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                             CUDNN_TYPE_CHAR, count, &got, text)) != COD_OK) {
        free(text);
        return nullptr;
    }
    *bytes = static_cast<size_t>(got);
    return text;
}

/** An engine of its own, made from the name, so that no descriptor of another thread's handle is touched. */
static void build_one(const cudnn_building *building, const cudnn_target *target, cudnn_engine *engine)
{
    cudnn_shape *own = nullptr;
    if (cudnn_shape_create(building->shape->bag.calls, target, building->op, "", engine->name, &own) != COD_OK)
        return;
    if (own->count == 1 && strcmp(own->engines[0].name, engine->name) == 0 &&
        cudnn_engine_build(own, target, 0) == COD_OK)
        engine->built = text_of(own, &engine->built_bytes);
    cudnn_shape_destroy(own);
}

static void *build_engines(void *context)
{
    cudnn_building *building = static_cast<cudnn_building *>(context);
    const cudnn_calls *calls = building->shape->bag.calls;
    cudnn_target own = *building->target;
    if (building->ordinal >= 0 &&
        (cudaSetDevice(building->ordinal) != cudaSuccess || COD_CUDNN(calls, cudnnCreate(&own.handle)) != COD_OK))
        return nullptr;
    for (int i = building->next++; i < building->shape->count && cod_clock_s() < building->end_s; i = building->next++)
        build_one(building, &own, &building->shape->engines[i]);
    if (building->ordinal >= 0)
        calls->cudnnDestroy(own.handle);
    return nullptr;
}

void cudnn_engines_build_ahead(cudnn_shape *shape, const cod_op *op, const cudnn_target *target, int ordinal,
                               double seconds)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[MOST_THREADS];
    cudnn_building building = {shape, op, target, ordinal, cod_clock_s() + seconds, {0}};
    int count = 0;
    while (count < MOST_THREADS && count < processors && count < shape->count &&
           pthread_create(&threads[count], nullptr, build_engines, &building) == 0)
        count++;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], nullptr);
}

#endif
