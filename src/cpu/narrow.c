/*
 * Convolutions with at most four channels on one side, such as an upscaler's first and last, where oneDNN reaches a
 * fifth of the processor's speed because most lanes of its vectors stay empty. Stride 1, output as large as the input,
 * or lower by what the kernel sees up and down.
 *
 * To few channels (*project*): lines of pixels are multiplied with the weights of all horizontal taps at once,
 *     z[c·KW + kx][pixel] = sum over lines ky and channels f of w[c][ky][kx][f]·x[pixel of line ky][f],
 * with pixels along the vectors, and y[c][pixel] is the sum over kx of z shifted by kx. With attr.int8_range on
 * integers: x + 128, as the instruction wants one factor unsigned, with sums that start at -128·Σw.
 *
 * From few channels (*expand*): the KW·C values below a line of the kernel lie side by side in a padded copy of the
 * image, so the convolution is a matrix product whose rows overlap.
 *
 * Weight gradients (*correlate*): products of the wide image's line and the narrow one's, shifted by each kx, summed
 * over pixels, for each ky.
 */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

#include <string.h>

enum {
    FEW_CHANNELS = 4,
    BAND_LINES = 32, /**< output lines of a task */
    TILE_PIXELS = 320,
    MOST_LINES = 32, /**< of a kernel */
    MOST_SLICES =
        16, /**< of the batch, for weight gradients: fixed by the shape, so that sums do not depend on threads */
    VECTOR = CPU_PAD
};

typedef enum narrow_way { PROJECT, EXPAND, CORRELATE } narrow_way;

typedef struct narrow_state {
    narrow_way way;
    const cod_view *from, *to; /**< PROJECT, EXPAND: as the data flow; CORRELATE: the wide and the narrow image */
    bool bf16;
    cpu_int8 *int8; /**< owned; NULL = not on integers */
    float *rounded; /**< owned; the weights as integers */
    int32_t *sums;  /**< in `packed`, behind the weights: of each line's rows, times -128 */
    bool flipped;   /**< weights of backward data, or CORRELATE where the narrow image is the output */
    int64_t per_lane;
    int64_t n, h, w, few, many, kernel_h, kernel_w, pad_h, pad_w;
    int64_t depth; /**< lanes summed over, for each line of the kernel */
    int32_t *packed;
    int64_t packed_stride; /**< EXPAND: of a lane's outputs */
    int64_t tile, lanes_wide, margin;
    int slices;
    size_t thread_bytes; /**< of scratch, for each thread, behind `shared_bytes` */
    size_t shared_bytes;
    size_t at_z, at_y, at_row, at_bytes, at_start; /**< in a thread's part */
} narrow_state;

static void narrow_destroy(void *memory)
{
    narrow_state *state = memory;
    cod_aligned_free(state->packed);
    cod_aligned_free(state->int8);
    cod_aligned_free(state->rounded);
    cod_aligned_free(state);
}

static const cod_view *weights_of(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->outputs[0] : &op->inputs[1];
}

bool cpu_narrow_fits(const cod_device *device, const cod_op *op)
{
    if (op->kind != COD_OP_CONV2D && op->kind != COD_OP_CONV2D_BACKWARD_DATA &&
        op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return false;
    const cod_shape w = weights_of(op)->shape;
    const int64_t few = cpu_least(w.n, w.c), many = cpu_greatest(w.n, w.c);
    const bool same = op->attr.stride_h == 1 && op->attr.stride_w == 1 &&
                      (2 * op->attr.pad_h == w.h - 1 || (op->attr.pad_h == 0 && op->kind == COD_OP_CONV2D)) &&
                      2 * op->attr.pad_w == w.w - 1;
    const bool types = cpu_multiplies(device, op->inputs[0].dtype) &&
                       (op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS || op->inputs[0].dtype == op->inputs[1].dtype);
    const bool int8 = op->kind == COD_OP_CONV2D && op->attr.int8_range > 0;
    return same && op->attr.factor <= 1 && few <= FEW_CHANNELS && many >= VECTOR && w.h * w.w > 1 &&
           w.h <= MOST_LINES && (int8 ? w.n < w.c && device->native_int8 && device->kernels->dots_s8 : types);
}

/** The weight from input channel `f` to output channel `t` of the direction that data flow in. */
static float weight(const narrow_state *s, const float *w, int64_t t, int64_t ky, int64_t kx, int64_t f)
{
    const int64_t inputs = s->way == PROJECT ? s->many : s->few, outputs = s->way == PROJECT ? s->few : s->many;
    if (s->flipped)
        return w[((f * s->kernel_h + s->kernel_h - 1 - ky) * s->kernel_w + s->kernel_w - 1 - kx) * outputs + t];
    return w[((t * s->kernel_h + ky) * s->kernel_w + kx) * inputs + f];
}

static void put(const narrow_state *s, int32_t *lane, int64_t part, float value)
{
    if (s->int8 != NULL) {
        ((int8_t *)lane)[part] = (int8_t)value;
        return;
    }
    if (!s->bf16) {
        memcpy(lane, &value, sizeof value);
        return;
    }
    const uint16_t half = cod_bf16_from_f32(value);
    memcpy((char *)lane + 2 * part, &half, sizeof half);
}

/** What x + 128 adds to the sums of each line, negated. */
static void sum_rows(const narrow_state *s)
{
    const int64_t rows = s->few * s->kernel_w;
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        for (int64_t at = 0; at < rows; at++) {
            int32_t sum = 0;
            for (int64_t many = 0; many < s->many; many++)
                sum += (int32_t)weight(s, s->rounded, at / s->kernel_w, ky, at % s->kernel_w, many);
            s->sums[ky * rows + at] = -128 * sum;
        }
    }
}

static cod_status narrow_prepare(cod_plan *plan)
{
    const narrow_state *s = plan->state;
    const float *w = cod_view_host(&plan->op.inputs[1]);
    if (s->int8 != NULL) {
        cpu_int8_round(plan, s->int8, s->rounded);
        sum_rows(s);
        w = s->rounded;
    }
    const int64_t rows = s->few * s->kernel_w, line = s->depth * (s->way == PROJECT ? rows : s->packed_stride);
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        int32_t *packed = s->packed + ky * line;
        for (int64_t few = 0; few < s->few; few++) {
            for (int64_t kx = 0; kx < s->kernel_w; kx++) {
                const int64_t at = s->way == PROJECT ? few * s->kernel_w + kx : kx * s->few + few;
                for (int64_t many = 0; many < s->many; many++) {
                    if (s->way == PROJECT)
                        put(s, packed + many / s->per_lane * rows + at, many % s->per_lane,
                            weight(s, w, few, ky, kx, many));
                    else
                        put(s, packed + at / s->per_lane * s->packed_stride + many, at % s->per_lane,
                            weight(s, w, many, ky, kx, few));
                }
            }
        }
    }
    return COD_OK;
}

/** What the tasks of one run share. */
typedef struct narrow_run {
    const cod_plan *plan;
    const narrow_state *s;
    const float *bias;
    cpu_activation act;
    cpu_affine activation; /**< slope NULL = none */
} narrow_run;

static cpu_rows line_of(const cod_view *view, int64_t n, int64_t line)
{
    return cpu_rows_from(cpu_rows_of(view), (n * view->shape.h + line) * view->shape.w);
}

static int64_t element_bytes(const narrow_state *s)
{
    return s->bf16 ? 2 : 4;
}

static void activate_row(const narrow_run *run, cpu_rows y, int64_t pixels)
{
    if (run->activation.slope != NULL)
        run->plan->device->kernels->affine(y, y, pixels, run->s->to->shape.c, run->act, &run->activation);
}

/** Planar sums -> the output's pixels. */
static void store_projected(const narrow_run *run, const float *planes, float *row, cpu_rows y, int64_t pixels)
{
    const narrow_state *s = run->s;
    for (int64_t c = 0; c < s->few; c++) {
        const float *plane = planes + c * s->lanes_wide, bias = run->bias != NULL ? run->bias[c] : 0;
        const float factor = s->int8 != NULL ? s->int8->factors[c] : 1;
        for (int64_t i = 0; i < pixels; i++)
            row[i * s->few + c] = plane[i] * factor + bias;
    }
    const cpu_kernels *kernels = run->plan->device->kernels;
    const bool dense = y.stride == s->few, add = run->plan->op.accumulate;
    activate_row(run, (cpu_rows){(char *)row, s->few, false}, pixels); /* before it is rounded */
    if (dense)
        kernels->add((cpu_rows){(char *)row, 0, false}, (cpu_rows){0}, y, 1, pixels * s->few, 1, 0, add);
    else
        kernels->add((cpu_rows){(char *)row, s->few, false}, (cpu_rows){0}, y, pixels, s->few, 1, 0, add);
}

/** A line's pixels -> lanes. */
static void spread_line(const narrow_run *run, cpu_rows x, int64_t pixels, char *bytes, int32_t *lanes)
{
    const narrow_state *s = run->s;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const bool int8 = s->int8 != NULL;
    const int64_t size = int8 ? 1 : element_bytes(s), stride = int8 ? s->many : x.stride * size;
    if (int8)
        kernels->quantise(x, (int8_t *)bytes, pixels, s->many, cpu_int8_input_factor(&run->plan->op));
    const char *pixel = int8 ? bytes : x.data;
    for (int64_t p = 0; p < s->lanes_wide; p += CPU_LANE_BLOCK, pixel += CPU_LANE_BLOCK * stride)
        kernels->lanes_spread(pixel, stride, pixels - p, s->many * size, int8 ? (int32_t)0x80808080 : 0,
                              lanes + p * s->depth, CPU_LANE_BLOCK);
}

/** What the sums of some lines of the kernel start from. */
static void fill_start(const narrow_state *s, int64_t first, int64_t count, int32_t *start)
{
    const int64_t rows = s->few * s->kernel_w;
    for (int64_t at = 0; at < rows && s->int8 != NULL; at++) {
        start[at] = 0;
        for (int64_t ky = first; ky < first + count; ky++)
            start[at] += s->sums[ky * rows + at];
    }
}

/** A band of output lines, for output pixels x0 to x1. */
static void project_tile(const narrow_run *run, char *scratch, int64_t n, int64_t top, int64_t bottom, int64_t x0,
                         int64_t x1)
{
    const narrow_state *s = run->s;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int64_t from = cpu_greatest(0, x0 - s->pad_w), to = cpu_least(s->w, x1 + s->pad_w),
                  rows = s->few * s->kernel_w;
    const int64_t z_stride = s->lanes_wide + 2 * s->margin, line_lanes = s->depth * s->lanes_wide;
    int32_t *ring = (int32_t *)(void *)scratch, *start = (int32_t *)(void *)(scratch + s->at_start);
    float *z = (float *)(void *)(scratch + s->at_z), *planes = (float *)(void *)(scratch + s->at_y),
          *row = (float *)(void *)(scratch + s->at_row);
    memset(z, 0, (size_t)(rows * z_stride) * sizeof *z);
    int64_t spread = cpu_greatest(0, top - s->pad_h);
    for (int64_t line = top; line < bottom; line++) {
        const int64_t first = cpu_greatest(0, line - s->pad_h),
                      last = cpu_least(s->from->shape.h, line - s->pad_h + s->kernel_h) - 1;
        const int64_t first_tap = first - line + s->pad_h;
        const int32_t *lines[MOST_LINES];
        for (; spread <= last; spread++)
            spread_line(run, cpu_rows_from(line_of(s->from, n, spread), from), to - from, scratch + s->at_bytes,
                        ring + spread % s->kernel_h * line_lanes);
        for (int64_t y = first; y <= last; y++)
            lines[y - first] = ring + y % s->kernel_h * line_lanes;
        fill_start(s, first_tap, last - first + 1, start);
        const cpu_narrow_project p = {.lines = lines,
                                      .weights = s->packed + first_tap * s->depth * rows,
                                      .start = start,
                                      .z = z + s->margin,
                                      .line_count = last - first + 1,
                                      .depth = s->depth,
                                      .rows = rows,
                                      .pixels = s->lanes_wide,
                                      .z_stride = z_stride};
        kernels->narrow_project(&p, s->int8 != NULL ? CPU_LANE_S8 : s->bf16 ? CPU_LANE_BF16 : CPU_LANE_F32);
        kernels->narrow_shift_add(z + s->margin + x0 - s->pad_w - from, z_stride, s->kernel_w, s->few, planes,
                                  s->lanes_wide, x1 - x0);
        store_projected(run, planes, row, cpu_rows_from(line_of(s->to, n, line), x0), x1 - x0);
    }
}

static int64_t bands(const narrow_state *s)
{
    return (s->h + BAND_LINES - 1) / BAND_LINES;
}

static void project_task(void *context, int64_t i, int thread)
{
    const narrow_run *run = context;
    const narrow_state *s = run->s;
    const int64_t n = i / bands(s), top = i % bands(s) * BAND_LINES, bottom = cpu_least(s->h, top + BAND_LINES);
    for (int64_t x = 0; x < s->w; x += s->tile)
        project_tile(run, cpu_thread_scratch(run->plan, s->shared_bytes, s->thread_bytes, thread), n, top, bottom, x,
                     cpu_least(s->w, x + s->tile));
}

/** Bytes of a line of the padded copy: zeros around the pixels, and a lane more, as the last one may be half used. */
static int64_t padded_line_bytes(const narrow_state *s)
{
    return (int64_t)cod_align_up((size_t)(((s->w + 2 * s->pad_w) * s->few + 2) * element_bytes(s)));
}

static void copy_row(cpu_rows row, int64_t pixels, int64_t channels, int64_t bytes, char *target)
{
    if (row.stride == channels) {
        memcpy(target, row.data, (size_t)(pixels * channels * bytes));
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        memcpy(target + i * channels * bytes, row.data + i * row.stride * bytes, (size_t)(channels * bytes));
}

static void expand_task(void *context, int64_t i, int thread)
{
    const narrow_run *run = context;
    const narrow_state *s = run->s;
    const int64_t n = i / bands(s), top = i % bands(s) * BAND_LINES, bottom = cpu_least(s->h, top + BAND_LINES);
    const int64_t line_bytes = padded_line_bytes(s), bytes = element_bytes(s);
    char *padded = cpu_thread_scratch(run->plan, s->shared_bytes, s->thread_bytes, thread);
    memset(padded, 0, (size_t)((BAND_LINES + s->kernel_h - 1) * line_bytes));
    for (int64_t y = cpu_greatest(0, top - s->pad_h);
         y < cpu_least(s->from->shape.h, bottom - s->pad_h + s->kernel_h - 1); y++)
        copy_row(line_of(s->from, n, y), s->w, s->few, bytes,
                 padded + (y - top + s->pad_h) * line_bytes + s->pad_w * s->few * bytes);
    for (int64_t y = top; y < bottom; y++) {
        const cpu_rows out = line_of(s->to, n, y);
        const cpu_narrow_expand p = {.x = padded + (y - top) * line_bytes,
                                     .weights = s->packed,
                                     .bias = run->bias,
                                     .y = out,
                                     .line_bytes = line_bytes,
                                     .weight_stride = s->packed_stride,
                                     .pixels = s->w,
                                     .channels = s->few,
                                     .outputs = s->many,
                                     .lines = s->kernel_h,
                                     .depth = s->depth,
                                     .accumulate = run->plan->op.accumulate};
        run->plan->device->kernels->narrow_expand(&p, s->bf16);
        activate_row(run, out, s->w);
    }
}

/** Vectors for bias and activation, at the start of scratch. */
static narrow_run run_begin(const cod_plan *plan)
{
    const narrow_state *s = plan->state;
    const cod_op *op = &plan->op;
    narrow_run run = {.plan = plan, .s = s};
    if (op->kind != COD_OP_CONV2D)
        return run;
    const int64_t channels = s->to->shape.c, padded = cpu_padded(channels);
    float *vectors = (float *)(void *)plan->device->scratch;
    if (cpu_present(&op->inputs[2])) {
        cpu_fill_vector(vectors, channels, &op->inputs[2]);
        run.bias = vectors;
    }
    if (op->attr.activation == COD_ACT_NONE)
        return run;
    run.act = cpu_activation_of(&op->attr);
    run.activation = cpu_fill_activation(vectors + padded, channels, &op->attr, &op->inputs[3]);
    return run;
}

static cod_status convolve_run(cod_plan *plan)
{
    narrow_run run = run_begin(plan);
    cpu_parallel_for(plan->device, run.s->n * bands(run.s), run.s->way == PROJECT ? project_task : expand_task, &run);
    return COD_OK;
}

/* Weight gradients. */

/** The narrow image as planes of lines, padded with zeros: [line][channel][pad + w + pad]. */
static void fill_planes(const narrow_state *s, int64_t n, char *planes, int64_t plane_bytes)
{
    memset(planes, 0, (size_t)(s->h * s->few * plane_bytes));
    for (int64_t y = 0; y < s->h; y++) {
        const cpu_rows row = line_of(s->to, n, y);
        for (int64_t c = 0; c < s->few; c++) {
            char *plane = planes + (y * s->few + c) * plane_bytes;
            if (s->bf16) {
                const uint16_t *x = (const uint16_t *)(const void *)row.data;
                for (int64_t i = 0; i < s->w; i++)
                    ((uint16_t *)(void *)plane)[s->pad_w + i] = x[i * row.stride + c];
            } else {
                const float *x = (const float *)(const void *)row.data;
                for (int64_t i = 0; i < s->w; i++)
                    ((float *)(void *)plane)[s->pad_w + i] = x[i * row.stride + c];
            }
        }
    }
}

static int64_t plane_bytes_of(const narrow_state *s)
{
    return (int64_t)cod_align_up((size_t)((s->w + 2 * s->pad_w + 2) * element_bytes(s)));
}

static int64_t slice_floats(const narrow_state *s)
{
    return s->kernel_h * s->few * s->kernel_w * s->packed_stride;
}

static void correlate_task(void *context, int64_t i, int thread)
{
    const narrow_run *run = context;
    const narrow_state *s = run->s;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int64_t plane_bytes = plane_bytes_of(s);
    float *sums = (float *)(void *)run->plan->device->scratch + i * slice_floats(s);
    char *planes = cpu_thread_scratch(run->plan, s->shared_bytes, s->thread_bytes, thread);
    int32_t *wide = (int32_t *)(void *)(planes + s->at_row);
    memset(sums, 0, (size_t)slice_floats(s) * sizeof *sums);
    for (int64_t n = s->n * i / s->slices; n < s->n * (i + 1) / s->slices; n++) {
        fill_planes(s, n, planes, plane_bytes);
        for (int64_t line = 0; line < s->h; line++) {
            const cpu_rows x = line_of(s->from, n, line);
            kernels->lanes_pair(x.data, x.stride * element_bytes(s), s->w, s->many, s->bf16, wide, s->packed_stride);
            for (int64_t ky = 0; ky < s->kernel_h; ky++) {
                const int64_t y = line + ky - s->pad_h;
                if (y < 0 || y >= s->h)
                    continue;
                const cpu_narrow_correlate p = {.wide = wide,
                                                .narrow = planes + y * s->few * plane_bytes,
                                                .sums = sums + ky * s->few * s->kernel_w * s->packed_stride,
                                                .depth = s->depth,
                                                .channels = s->few,
                                                .taps = s->kernel_w,
                                                .wide_stride = s->packed_stride,
                                                .plane_bytes = plane_bytes};
                kernels->narrow_correlate(&p, s->bf16);
            }
        }
    }
}

/** Adds the slices into the gradient, OHWI. */
static void gather_gradient(const narrow_state *s, const float *sums, float *grad, bool accumulate)
{
    const cod_shape shape = {s->flipped ? s->few : s->many, s->kernel_h, s->kernel_w, s->flipped ? s->many : s->few};
    const int64_t slice = slice_floats(s);
    for (int64_t few = 0; few < s->few; few++) {
        for (int64_t ky = 0; ky < s->kernel_h; ky++) {
            for (int64_t kx = 0; kx < s->kernel_w; kx++) {
                const float *sum = sums + ((ky * s->few + few) * s->kernel_w + kx) * s->packed_stride;
                for (int64_t many = 0; many < s->many; many++) {
                    float total = 0;
                    for (int k = 0; k < s->slices; k++)
                        total += sum[k * slice + many];
                    const int64_t at =
                        s->flipped ? ((few * shape.h + shape.h - 1 - ky) * shape.w + shape.w - 1 - kx) * shape.c + many
                                   : ((many * shape.h + ky) * shape.w + kx) * shape.c + few;
                    grad[at] = total + (accumulate ? grad[at] : 0);
                }
            }
        }
    }
}

static cod_status correlate_run(cod_plan *plan)
{
    const narrow_state *s = plan->state;
    narrow_run run = {.plan = plan, .s = s};
    cpu_parallel_for(plan->device, s->slices, correlate_task, &run);
    gather_gradient(s, (const float *)(const void *)plan->device->scratch, cod_view_host(&plan->op.outputs[0]),
                    plan->op.accumulate);
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

/* Construction. */

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static void plan_project(narrow_state *s)
{
    const int64_t most = cpu_greatest(VECTOR, TILE_PIXELS - 2 * s->pad_w), tiles = (s->w + most - 1) / most;
    s->depth = (s->many + s->per_lane - 1) / s->per_lane;
    s->tile = s->w <= TILE_PIXELS ? s->w : (s->w + tiles - 1) / tiles;
    s->lanes_wide = round_up(s->w <= TILE_PIXELS ? s->w : s->tile + 2 * s->pad_w, CPU_LANE_BLOCK);
    s->margin = round_up(s->pad_w, VECTOR) + VECTOR;
    const int64_t rows = s->few * s->kernel_w;
    s->at_z = (size_t)(s->kernel_h * s->depth * s->lanes_wide) * sizeof(int32_t);
    s->at_y = s->at_z + cod_align_up((size_t)(rows * (s->lanes_wide + 2 * s->margin)) * sizeof(float));
    s->at_row = s->at_y + (size_t)(s->few * s->lanes_wide) * sizeof(float);
    s->at_bytes = s->at_row + cod_align_up((size_t)(s->few * s->tile) * sizeof(float));
    s->at_start = s->at_bytes + (s->int8 != NULL ? cod_align_up((size_t)(s->lanes_wide * s->many)) : 0);
    s->thread_bytes = s->at_start + cod_align_up((size_t)rows * sizeof(int32_t));
}

static void plan_expand(narrow_state *s)
{
    s->depth = (s->kernel_w * s->few + s->per_lane - 1) / s->per_lane;
    s->packed_stride = cpu_padded(s->many);
    s->thread_bytes = (size_t)((BAND_LINES + s->kernel_h - 1) * padded_line_bytes(s));
}

static void plan_correlate(narrow_state *s)
{
    s->depth = (s->w + s->per_lane - 1) / s->per_lane;
    s->packed_stride = cpu_padded(s->many);
    s->slices = (int)cpu_least(s->n, MOST_SLICES);
    s->at_row = (size_t)(s->h * s->few * plane_bytes_of(s));
    s->thread_bytes = s->at_row + (size_t)(s->depth * s->packed_stride) * sizeof(int32_t);
    s->shared_bytes = cod_align_up((size_t)(s->slices * slice_floats(s)) * sizeof(float));
}

cod_status cpu_plan_narrow(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(narrow_state)));
    plan->destroy = narrow_destroy;
    narrow_state *s = plan->state;
    const bool forward = op->kind == COD_OP_CONV2D, gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    const cod_shape w = weights_of(op)->shape;
    const bool few_outputs = w.n < w.c;
    s->few = cpu_least(w.n, w.c), s->many = cpu_greatest(w.n, w.c);
    s->kernel_h = w.h, s->kernel_w = w.w, s->pad_h = op->attr.pad_h, s->pad_w = op->attr.pad_w;
    s->way = gradient ? CORRELATE : few_outputs == forward ? PROJECT : EXPAND;
    s->from = &plan->op.inputs[gradient && !few_outputs ? 1 : 0];
    s->to = gradient ? &plan->op.inputs[few_outputs ? 1 : 0] : &plan->op.outputs[0];
    s->flipped = gradient ? few_outputs : !forward;
    s->bf16 = s->from->dtype == COD_BF16;
    if (forward && op->attr.int8_range > 0)
        COD_TRY(cpu_int8_create(plan, &s->int8));
    s->per_lane = s->int8 != NULL ? 4 : s->bf16 ? 2 : 1;
    s->n = s->from->shape.n, s->h = s->to->shape.h, s->w = s->from->shape.w;
    s->shared_bytes = 4 * (size_t)cpu_padded(s->to->shape.c) * sizeof(float);
    if (s->way == PROJECT)
        plan_project(s);
    else if (s->way == EXPAND)
        plan_expand(s);
    else
        plan_correlate(s);
    if (!gradient) {
        void *packed;
        const int64_t columns = s->way == PROJECT ? s->few * s->kernel_w : s->packed_stride;
        const int64_t lanes = s->kernel_h * s->depth * columns;
        COD_TRY(cod_aligned_alloc(&packed, (size_t)(lanes + s->kernel_h * columns) * sizeof(int32_t)));
        s->packed = packed;
        s->sums = s->packed + lanes;
    }
    if (s->int8 != NULL) {
        void *rounded;
        COD_TRY(cod_aligned_alloc(&rounded, (size_t)cod_shape_count(w) * sizeof(float)));
        s->rounded = rounded;
    }
    if (!gradient) {
        plan->prepare = narrow_prepare;
    }
    plan->run = gradient ? correlate_run : convolve_run;
    const size_t vectors = 3 * (size_t)cpu_padded(s->many) * sizeof(float); /* cpu_bias_gradient()'s */
    const size_t bytes = s->shared_bytes + (size_t)plan->device->threads * s->thread_bytes;
    return cpu_plan_need_scratch(plan, bytes > vectors ? bytes : vectors);
}
