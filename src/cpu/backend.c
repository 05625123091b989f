#include "cpu/cpu.h"

#include "core/host_memory.h"
#include "core/memory.h"
#include "cpu/tune_internal.h"

#include <stdio.h>

static void cpu_close(cod_device *device)
{
    if (device == NULL)
        return;
    cpu_tune_clear(device);
    cpu_trial_forget(device);
    cpu_onednn_destroy(device->onednn);
    cod_aligned_free(device->scratch);
    cod_aligned_free(device->between.host);
    cod_aligned_free(device);
}

/** Chooses the kernels, and whether bf16 is worth having: not where oneDNN would emulate it or has none. */
static cod_status choose_isa(cod_device *device)
{
    static const cpu_kernels *const kernels[] = {
        [CPU_ISA_GENERIC] = &cpu_kernels_generic,
#if defined(__x86_64__)
        [CPU_ISA_AVX2] = &cpu_kernels_avx2,
        [CPU_ISA_AVX512] = &cpu_kernels_avx512,
        [CPU_ISA_AVX512_BF16] = &cpu_kernels_avx512_bf16,
#endif
    };
    cpu_isa own, library;
    COD_TRY(cpu_isa_choose(&own, &library));
    device->kernels = kernels[own];
    device->amx = library >= CPU_ISA_AMX;
    device->native_bf16 = own >= CPU_ISA_AVX512_BF16 && library >= CPU_ISA_AVX512_BF16;
    device->native_int8 = cpu_onednn_has_int8();
    char version[32];
    cpu_onednn_describe(version, sizeof version);
    snprintf(device->description, sizeof device->description, "%s (%s), %s kernels, %d thread%s", version,
             cpu_isa_name(library), device->kernels->name, device->threads, device->threads == 1 ? "" : "s");
    return COD_OK;
}

static cod_status cpu_open(const cod_device_options *options, cod_device **out)
{
    const int threads = options != NULL ? options->threads : 0;
    COD_REQUIRE(threads >= 0, "cpu: %d threads are too few", threads);
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cod_device)));
    cod_device *device = memory;
    device->threads = cpu_grant_threads(threads > 0 ? threads : 1);
    device->no_autotune = options != NULL && options->no_autotune;
    cod_status status = choose_isa(device);
    COD_THEN(status, cpu_convolution_force(device));
    COD_THEN(status, cpu_onednn_create(&device->onednn));
    if (status == COD_OK)
        *out = device;
    else
        cpu_close(device);
    return status;
}

static const char *cpu_describe(cod_device *device)
{
    return device->description;
}

static bool cpu_supports(cod_device *device, cod_dtype activation)
{
    return activation == COD_F32 || (activation == COD_BF16 && device->native_bf16) ||
           (activation == COD_S8 && device->native_int8);
}

/** Which types a view may have: activations f32 or bf16, parameters and statistics f32, positions i32. */
static cod_status check_types(const cod_op *op)
{
    static const unsigned activations[COD_OP_KIND_COUNT][2] = {
        /* bit i of [0] and [1]: inputs and outputs that are activations */
        [COD_OP_CONV2D] = {1 | 1u << 4, 1},
        [COD_OP_CONV2D_BACKWARD_DATA] = {1, 1},
        [COD_OP_LINEAR] = {1, 1},
        [COD_OP_LINEAR_BACKWARD_DATA] = {1, 1},
        [COD_OP_CONV2D_BACKWARD_WEIGHTS] = {3, 0},
        [COD_OP_LINEAR_BACKWARD_WEIGHTS] = {3, 0},
        [COD_OP_NORM_TRAIN] = {1 | 1u << 4, 1},
        [COD_OP_NORM_INFERENCE] = {1 | 1u << 6, 1},
        [COD_OP_NORM_APPLY] = {1 | 1u << 6, 1},
        [COD_OP_NORM_BACKWARD] = {3, 1},
        [COD_OP_NORM_INFERENCE_BACKWARD] = {3, 1},
        [COD_OP_ACTIVATION] = {1, 1},
        [COD_OP_ACTIVATION_BACKWARD] = {3, 1},
        [COD_OP_ADD] = {3, 1},
        [COD_OP_MEAN] = {1, 1},
        [COD_OP_PIXEL_SHUFFLE] = {1, 1},
        [COD_OP_PIXEL_UNSHUFFLE] = {1, 1},
        [COD_OP_RESIZE] = {1, 1},
        [COD_OP_RESIZE_BACKWARD] = {1, 1},
        [COD_OP_POOL] = {1, 1},
        [COD_OP_POOL_BACKWARD] = {1, 1},
        [COD_OP_LOSS] = {3, 6},
        [COD_OP_FILL] = {0, 1},
        [COD_OP_TURN] = {1, 1},
        [COD_OP_MAGNITUDES] = {1, 0},
    };
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const bool output = i >= COD_OP_MAX_INPUTS;
        const size_t k = output ? i - COD_OP_MAX_INPUTS : i;
        const cod_view *view = output ? &op->outputs[k] : &op->inputs[k];
        if (!cpu_present(view))
            continue;
        const bool counts = k == 0 && op->kind == (output ? COD_OP_MAGNITUDES : COD_OP_RANGES);
        const bool integer =
            counts || (k == 1 && (output ? op->kind == COD_OP_POOL
                                         : op->kind == COD_OP_POOL_BACKWARD || op->kind == COD_OP_TURN));
        const bool activation = (activations[op->kind][output] >> k & 1u) != 0;
        const bool fits = integer      ? view->dtype == COD_I32
                          : activation ? view->dtype == COD_F32 || view->dtype == COD_BF16
                                       : view->dtype == COD_F32 && cod_view_is_dense(view);
        if (!fits)
            return cod_fail(COD_ERR_UNSUPPORTED, "cpu: %s '%s': %s %zu is %s%s; it must be %s",
                            cod_op_kind_name(op->kind), op->name ? op->name : "", output ? "output" : "input", k,
                            cod_view_is_dense(view) ? "" : "strided ", cod_dtype_name(view->dtype),
                            integer      ? "i32"
                            : activation ? "f32 or bf16"
                                         : "dense f32");
    }
    return COD_OK;
}

static cod_status cpu_plan_create_checked(cod_device *device, const cod_op *op, cod_plan **out)
{
    static cpu_plan_constructor *const constructors[COD_OP_KIND_COUNT] = {
        [COD_OP_CONV2D] = cpu_plan_convolution,
        [COD_OP_CONV2D_BACKWARD_DATA] = cpu_plan_convolution,
        [COD_OP_CONV2D_BACKWARD_WEIGHTS] = cpu_plan_convolution,
        [COD_OP_LINEAR] = cpu_plan_linear,
        [COD_OP_LINEAR_BACKWARD_DATA] = cpu_plan_linear,
        [COD_OP_LINEAR_BACKWARD_WEIGHTS] = cpu_plan_linear,
        [COD_OP_NORM_TRAIN] = cpu_plan_norm_train,
        [COD_OP_NORM_INFERENCE] = cpu_plan_norm_apply,
        [COD_OP_NORM_APPLY] = cpu_plan_norm_apply,
        [COD_OP_NORM_BACKWARD] = cpu_plan_norm_backward,
        [COD_OP_NORM_INFERENCE_BACKWARD] = cpu_plan_norm_inference_backward,
        [COD_OP_FOLD_NORM] = cpu_plan_fold_norm,
        [COD_OP_ACTIVATION] = cpu_plan_activation,
        [COD_OP_ACTIVATION_BACKWARD] = cpu_plan_activation_backward,
        [COD_OP_ADD] = cpu_plan_add,
        [COD_OP_MEAN] = cpu_plan_mean,
        [COD_OP_PIXEL_SHUFFLE] = cpu_plan_shuffle,
        [COD_OP_PIXEL_UNSHUFFLE] = cpu_plan_shuffle,
        [COD_OP_RESIZE] = cpu_plan_resize,
        [COD_OP_RESIZE_BACKWARD] = cpu_plan_resize,
        [COD_OP_POOL] = cpu_plan_pool,
        [COD_OP_POOL_BACKWARD] = cpu_plan_pool_backward,
        [COD_OP_LOSS] = cpu_plan_loss,
        [COD_OP_GRAD_NORM] = cpu_plan_grad_norm,
        [COD_OP_OPTIMISER] = cpu_plan_optimiser,
        [COD_OP_EMA] = cpu_plan_ema,
        [COD_OP_FILL] = cpu_plan_fill,
        [COD_OP_TURN] = cpu_plan_turn,
        [COD_OP_MIX] = cpu_plan_mix,
        [COD_OP_SPECTRAL_NORM] = cpu_plan_spectral_norm,
        [COD_OP_SPECTRAL_NORM_BACKWARD] = cpu_plan_spectral_norm_backward,
        [COD_OP_MAGNITUDES] = cpu_plan_magnitudes,
        [COD_OP_RANGES] = cpu_plan_ranges,
    };
    COD_TRY(cod_op_check(op));
    if (constructors[op->kind] == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "cpu: %s '%s': this backend has no such op; it normalises by %s and %s as a whole",
                        cod_op_kind_name(op->kind), op->name ? op->name : "", cod_op_kind_name(COD_OP_NORM_TRAIN),
                        cod_op_kind_name(COD_OP_NORM_BACKWARD));
    COD_TRY(check_types(op));
    COD_TRY(cpu_use_threads(device->threads));
    const cod_status status = cpu_plan_create(device, op, constructors[op->kind], out);
    return status == COD_OK
               ? COD_OK
               : cod_fail_prefix(status, "cpu: %s '%s'", cod_op_kind_name(op->kind), op->name ? op->name : "");
}

static cod_status cpu_plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    (void)queue;
    COD_TRY(cpu_use_threads(device->threads));
    for (size_t i = 0; i < count; i++)
        if (plans[i]->prepare != NULL)
            COD_TRY(plans[i]->prepare(plans[i]));
    return COD_OK;
}

/** As cpu_plans_prepare(), but passes over what the update has already written. */
static cod_status cpu_plans_prepare_updated(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    for (size_t i = 0; i < count; i++)
        if (plans[i]->pack == NULL || !cpu_pack_is_current(plans[i]->pack))
            COD_TRY(cpu_plans_prepare(device, &plans[i], 1, queue));
    return COD_OK;
}

static cod_status cpu_plan_run(cod_plan *plan, cod_queue *queue)
{
    (void)queue;
    COD_TRY(cpu_use_threads(plan->device->threads));
    if (plan->device->trial_memory != NULL)
        cpu_trial_forget(plan->device);
    return plan->watch.tuned != NULL ? cpu_watch_run(plan) : plan->run(plan);
}

const cod_backend cod_cpu_backend = {
    .version = COD_BACKEND_VERSION,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .supports = cpu_supports,
    COD_HOST_MEMORY,
    .plan_create = cpu_plan_create_checked,
    .plans_prepare = cpu_plans_prepare,
    .plans_prepare_updated = cpu_plans_prepare_updated,
    .plan_run = cpu_plan_run,
    .plan_destroy = cpu_plan_destroy,
};
