/*
 * Times the backend's ops at the shapes of SRResNet (batch 16, 24x24 -> 96x96), one thread: ms, and GB/s of the views
 * or GFLOP/s.
 */
#include "core/trace.h"
#include "cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static cod_device *device;

static void give_buffer(cod_view *view)
{
    if (cod_shape_count(view->shape) == 0 ||
        cod_cpu_backend.buffer_create(device, cod_view_span_bytes(view) + 64, &view->buffer) != COD_OK)
        return;
    for (size_t i = 0; i < cod_view_span_bytes(view) / cod_dtype_bytes(view->dtype); i++) {
        const float value = (float)((i * 7919) % 1009) / 504.5f - 1.0f;
        if (view->dtype == COD_BF16)
            ((uint16_t *)view->buffer->host)[i] = cod_bf16_from_f32(value);
        else
            ((float *)view->buffer->host)[i] = value;
    }
}

static double time_op(cod_op op, const char *what)
{
    cod_view *views[COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS];
    size_t count = 0;
    double bytes = 0;
    for (int i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        cod_view *view = i < COD_OP_MAX_INPUTS ? &op.inputs[i] : &op.outputs[i - COD_OP_MAX_INPUTS];
        give_buffer(view);
        if (view->buffer != NULL) {
            views[count++] = view;
            bytes += (double)cod_view_span_bytes(view);
        }
    }
    cod_plan *plan = NULL;
    double best = INFINITY;
    if (cod_cpu_backend.plan_create(device, &op, &plan) != COD_OK ||
        cod_cpu_backend.plans_prepare(device, &plan, 1, NULL) != COD_OK) {
        printf("%-44s %s\n", what, cod_error_message());
    } else {
        for (int run = 0; run < 7; run++) {
            const double start = cod_clock_s();
            if (cod_cpu_backend.plan_run(plan, NULL) != COD_OK)
                break;
            best = fmin(best, cod_clock_s() - start);
        }
        const double flops = cod_op_flops(&op);
        printf("%-44s %8.3f ms %8.1f %s\n", what, best * 1e3, (flops > 0 ? flops : bytes) / best / 1e9,
               flops > 0 ? "GFLOP/s" : "GB/s");
    }
    cod_cpu_backend.plan_destroy(plan);
    for (size_t i = 0; i < count; i++)
        cod_cpu_backend.buffer_destroy(device, views[i]->buffer);
    return best;
}

static cod_view view(cod_dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return cod_view_dense(NULL, 0, dtype, (cod_shape){n, h, w, c});
}

/** Forward, data gradient (written and added) and weight gradient of a padded convolution. */
static void time_conv(cod_dtype dtype, int64_t size, int64_t in, int64_t out, int64_t kernel, int stride)
{
    const cod_view x = view(dtype, 16, size, size, in), y = view(dtype, 16, size / stride, size / stride, out);
    const cod_view w = view(COD_F32, out, kernel, kernel, in), b = view(COD_F32, 1, 1, 1, out);
    const int pad = (int)kernel / 2;
    const cod_op_attr attr = {.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad};
    char what[96];
#define TIME(label, ...)                                                                                               \
    do {                                                                                                               \
        snprintf(what, sizeof what, "%s %dx%d/%d %d->%d at %d %s", label, (int)kernel, (int)kernel, stride, (int)in,   \
                 (int)out, (int)size, cod_dtype_name(dtype));                                                          \
        time_op((cod_op){.attr = attr, __VA_ARGS__}, what);                                                            \
    } while (0)
    TIME("forward", .kind = COD_OP_CONV2D, .inputs = {x, w, b}, .outputs = {y});
    TIME("data", .kind = COD_OP_CONV2D_BACKWARD_DATA, .inputs = {y, w}, .outputs = {x});
    TIME("data +=", .kind = COD_OP_CONV2D_BACKWARD_DATA, .accumulate = true, .inputs = {y, w}, .outputs = {x});
    TIME("weights", .kind = COD_OP_CONV2D_BACKWARD_WEIGHTS, .inputs = {x, y}, .outputs = {w, b});
#undef TIME
}

static void time_rows(cod_dtype dtype, int64_t size, int64_t c)
{
    const cod_view x = view(dtype, 16, size, size, c), p = view(COD_F32, 1, 1, 1, c);
    const cod_op_attr norm = {.epsilon = 1e-5f, .momentum = 0.1f};
    const cod_op_attr prelu = {.activation = COD_ACT_PRELU, .epsilon = 1e-5f, .momentum = 0.1f};
    char what[96];
#define TIME(label, ...)                                                                                               \
    do {                                                                                                               \
        snprintf(what, sizeof what, "%s %dx%dx%d %s", label, (int)size, (int)size, (int)c, cod_dtype_name(dtype));     \
        time_op((cod_op){__VA_ARGS__}, what);                                                                          \
    } while (0)
    TIME("norm_train", .kind = COD_OP_NORM_TRAIN, .attr = norm, .inputs = {x, p, p}, .outputs = {x, p, p, p, p});
    TIME("norm_train+prelu", .kind = COD_OP_NORM_TRAIN, .attr = prelu, .inputs = {x, p, p, p},
         .outputs = {x, p, p, p, p});
    TIME("norm_train+add", .kind = COD_OP_NORM_TRAIN, .attr = norm, .inputs = {x, p, p, {0}, x},
         .outputs = {x, p, p, p, p});
    TIME("norm_inference", .kind = COD_OP_NORM_INFERENCE, .attr = norm, .inputs = {x, p, p, p, p}, .outputs = {x});
    TIME("norm_backward", .kind = COD_OP_NORM_BACKWARD, .attr = norm, .inputs = {x, x, p, p, p, p},
         .outputs = {x, p, p});
    TIME("norm_backward+prelu", .kind = COD_OP_NORM_BACKWARD, .attr = prelu, .inputs = {x, x, p, p, p, p, p},
         .outputs = {x, p, p, p});
    TIME("prelu", .kind = COD_OP_ACTIVATION, .attr = prelu, .inputs = {x, p}, .outputs = {x});
    TIME("prelu_backward", .kind = COD_OP_ACTIVATION_BACKWARD, .attr = prelu, .inputs = {x, x, p}, .outputs = {x, p});
    TIME("add", .kind = COD_OP_ADD, .attr = {.alpha = 1, .beta = 1}, .inputs = {x, x}, .outputs = {x});
    if (c % 4 == 0 && c >= 256) {
        const cod_view large = view(dtype, 16, size * 2, size * 2, c / 4);
        TIME("shuffle x2", .kind = COD_OP_PIXEL_SHUFFLE, .attr = {.factor = 2}, .inputs = {x}, .outputs = {large});
        TIME("unshuffle x2", .kind = COD_OP_PIXEL_UNSHUFFLE, .attr = {.factor = 2}, .inputs = {large}, .outputs = {x});
    }
    TIME("L1 loss", .kind = COD_OP_LOSS, .attr = {.alpha = 1}, .inputs = {x, x},
         .outputs = {view(COD_F32, 1, 1, 1, 1), x});
#undef TIME
}

int main(int argc, char **argv)
{
    const cod_device_options options = {.threads = argc > 1 ? atoi(argv[1]) : 1};
    if (cod_cpu_backend.open(&options, &device) != COD_OK)
        return 1;
    printf("%s\n", cod_cpu_backend.describe(device));
    const cod_dtype dtypes[] = {COD_BF16, COD_F32};
    for (int d = 0; d < (argc > 2 ? 2 : 1); d++) {
        time_conv(dtypes[d], 24, 64, 64, 3, 1);
        time_conv(dtypes[d], 24, 64, 256, 3, 1);
        time_conv(dtypes[d], 48, 64, 256, 3, 1);
        time_conv(dtypes[d], 24, 3, 64, 9, 1);
        time_conv(dtypes[d], 96, 64, 3, 9, 1);
        for (int64_t size = 96, c = 64; size > 6; size /= 2, c *= 2) /* of SRGAN's discriminator */
            time_conv(dtypes[d], size, c, c, 3, 2);
        time_rows(dtypes[d], 24, 64);
        time_rows(dtypes[d], 24, 256);
        time_rows(dtypes[d], 48, 256);
        time_rows(dtypes[d], 96, 64);
        time_rows(dtypes[d], 96, 3);
    }
    const cod_view flat = view(COD_F32, 1, 1, 1, 1500000), scalars = view(COD_F32, 1, 1, 1, 4),
                   one = view(COD_F32, 1, 1, 1, 1);
    time_op((cod_op){.kind = COD_OP_OPTIMISER,
                     .attr = {.optimiser = COD_OPT_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f},
                     .inputs = {flat, scalars},
                     .outputs = {flat, flat, flat}},
            "adam 1.5 M");
    time_op((cod_op){.kind = COD_OP_OPTIMISER,
                     .attr = {.optimiser = COD_OPT_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f},
                     .inputs = {flat, scalars},
                     .outputs = {flat, flat, flat, flat}},
            "adam with average 1.5 M");
    time_op((cod_op){.kind = COD_OP_GRAD_NORM, .inputs = {flat}, .outputs = {one}}, "grad_norm 1.5 M");
    time_op((cod_op){.kind = COD_OP_EMA, .inputs = {flat, one}, .outputs = {flat}}, "ema 1.5 M");
    cod_cpu_backend.close(device);
    return 0;
}
