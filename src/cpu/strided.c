/*
 * Convolutions of f32 with stride 2 by matrix products on padded copies of a few lines, which stay in the caches.
 *
 * Forward, a line of outputs is the sum, over the kernel's lines, of products whose depth is the kernel's width times
 * the inputs, as those pixels lie beside each other. Backward data does the same for each of the four parities of a
 * pixel of dx, to which every second line and column of the kernel contributes. Weight gradients sum over pixels: of
 * each line of dy and of those lines of x that a line of the kernel meets, lengthened by zeros so that pixels are as
 * far from each other across lines as within them. A number in x that is not finite is also multiplied with such zeros,
 * so it may make more taps of its channel NaN than the formula does.
 */
#include "core/memory.h"
#include "cpu/cpu_internal.h"

#include <string.h>

enum {
    STRIDE = 2,
    TASK_PIXELS = 96,     /**< of outputs, or of dy, at least: what a task's weights are read for */
    CHUNK_PIXELS = 256,   /**< of dy, about: what the sums of a weight gradient are read and written for */
    DEPTH_AT_ONCE = 128,  /**< of its products: operands that stay in the first-level cache */
    OUTPUTS_AT_ONCE = 48, /**< of a weight gradient's task */
};

typedef struct strided_state {
    cod_shape x, y, w;
    cpu_rows x_rows, y_rows;
    int64_t panel;  /**< columns of packed weights that lie beside each other, at most */
    int64_t lines;  /**< of y that a task, or a chunk, takes */
    int64_t groups; /**< of so many lines in a picture */
    int64_t pitch;  /**< pixels of a line in a task's copy, or from line to line of a chunk */
    int64_t before; /**< backward data: lines and columns of zeros above and to the left of dy */
    float *packed;
    size_t shared_bytes, thread_bytes;
} strided_state;

static void strided_destroy(void *memory)
{
    strided_state *state = memory;
    cod_aligned_free(state->packed);
    cod_aligned_free(state);
}

bool cpu_strided_fits(const cod_device *device, const cod_op *op)
{
    (void)device;
    const bool forward = op->kind == COD_OP_CONV2D, gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    if (!forward && !gradient && op->kind != COD_OP_CONV2D_BACKWARD_DATA)
        return false;
    const cod_shape w = (gradient ? &op->outputs[0] : &op->inputs[1])->shape;
    const cod_op_attr *attr = &op->attr;
    const bool geometry = attr->stride_h == STRIDE && attr->stride_w == STRIDE && w.h >= STRIDE && w.w >= STRIDE &&
                          attr->pad_h < w.h && attr->pad_w < w.w && cod_op_shuffle(attr) == 1;
    const bool types =
        op->inputs[0].dtype == COD_F32 && (gradient ? &op->inputs[1] : &op->outputs[0])->dtype == COD_F32;
    return geometry && types && w.n % CPU_PAD == 0 && w.c % CPU_PAD == 0 &&
           (!forward || (op->attr.int8_range <= 0 && cpu_activation_of(attr) == CPU_ACT_SLOPE));
}

static int64_t panel_width(const strided_state *s, int64_t column, int64_t columns)
{
    return cpu_least(columns - column, s->panel);
}

static float *floats(const cod_plan *plan, size_t at)
{
    return (float *)(void *)(plan->device->scratch + at);
}

static const int32_t *lanes(const float *values)
{
    return (const int32_t *)(const void *)values;
}

/** The line's first element; of a line that is not in the picture, NULL. */
static const float *line_of(cpu_rows rows, cod_shape shape, int64_t n, int64_t line)
{
    const bool inside = line >= 0 && line < shape.h;
    return inside ? (const float *)(const void *)rows.data + (n * shape.h + line) * shape.w * rows.stride : NULL;
}

/**
 * Copies pixels of a line, which may be NULL, to a dense one, the first being column `column`; zeros outside of the
 * picture.
 */
static void copy_line(cpu_rows rows, cod_shape shape, const float *line, int64_t column, int64_t pixels, float *to)
{
    const int64_t end = line != NULL ? cpu_greatest(cpu_least(shape.w - column, pixels), 0) : 0;
    const int64_t begin = cpu_least(cpu_greatest(-column, 0), end);
    const size_t bytes = (size_t)shape.c * sizeof *to;
    memset(to, 0, (size_t)begin * bytes);
    if (rows.stride == shape.c && end > begin)
        memcpy(to + begin * shape.c, line + (column + begin) * shape.c, (size_t)(end - begin) * bytes);
    else
        for (int64_t i = begin; i < end; i++)
            memcpy(to + i * shape.c, line + (column + i) * rows.stride, bytes);
    memset(to + end * shape.c, 0, (size_t)(pixels - end) * bytes);
}

/* Forward. */

static void pack_forward_task(void *context, int64_t kh, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const strided_state *s = plan->state;
    const int64_t depth = s->w.w * s->w.c, row_bytes = s->w.h * depth * (int64_t)sizeof(float);
    const char *w = (const char *)cod_view_host(&plan->op.inputs[1]) + kh * depth * (int64_t)sizeof(float);
    for (int64_t column = 0, width; column < s->w.n; column += width) {
        width = panel_width(s, column, s->w.n);
        float *to = s->packed + (kh * s->w.n + column) * depth;
        plan->device->kernels->lanes_spread(w + column * row_bytes, row_bytes, width, depth * (int64_t)sizeof(float), 0,
                                            (int32_t *)(void *)to, width);
    }
}

static cod_status prepare_forward(cod_plan *plan)
{
    cpu_parallel_for(plan->device, ((const strided_state *)plan->state)->w.h, pack_forward_task, plan);
    return COD_OK;
}

/** The sums of one panel of outputs of some lines. */
static void forward_panel(const cod_plan *plan, const float *copy, int64_t n, int64_t first, int64_t lines,
                          int64_t column, int64_t width)
{
    const strided_state *s = plan->state;
    const int64_t depth = s->w.w * s->w.c;
    for (int64_t line = 0; line < lines; line++) {
        float *y = (float *)(void *)s->y_rows.data + (n * s->y.h + first + line) * s->y.w * s->y_rows.stride + column;
        for (int64_t kh = 0; kh < s->w.h; kh++) {
            const cpu_product product = {.a = lanes(copy + (STRIDE * line + kh) * s->pitch * s->x.c),
                                         .b = lanes(s->packed + (kh * s->w.n + column) * depth),
                                         .c = y,
                                         .rows = s->y.w,
                                         .depth = depth,
                                         .columns = width,
                                         .a_row = STRIDE * s->x.c,
                                         .a_depth = 1,
                                         .b_stride = width,
                                         .c_stride = s->y_rows.stride,
                                         .accumulate = kh > 0};
            plan->device->kernels->product(&product, false);
        }
    }
}

static void forward_task(void *context, int64_t i, int thread)
{
    const cod_plan *plan = context;
    const strided_state *s = plan->state;
    const cod_op *op = &plan->op;
    const int64_t n = i / s->groups, first = i % s->groups * s->lines, lines = cpu_least(s->y.h - first, s->lines);
    float *copy = (float *)(void *)cpu_thread_scratch(plan, s->shared_bytes, s->thread_bytes, thread);
    for (int64_t line = 0; line < STRIDE * (lines - 1) + s->w.h; line++)
        copy_line(s->x_rows, s->x, line_of(s->x_rows, s->x, n, STRIDE * first + line - op->attr.pad_h), -op->attr.pad_w,
                  s->pitch, copy + line * s->pitch * s->x.c);
    for (int64_t column = 0, width; column < s->y.c; column += width) {
        width = panel_width(s, column, s->y.c);
        forward_panel(plan, copy, n, first, lines, column, width);
    }
    if (!cpu_present(&op->inputs[2]) && op->attr.activation == COD_ACT_NONE)
        return;
    const cpu_affine affine = cpu_biased_from(floats(plan, 0), s->y.c, 0);
    const cpu_rows y = cpu_rows_from(s->y_rows, (n * s->y.h + first) * s->y.w);
    plan->device->kernels->affine(y, y, lines * s->y.w, s->y.c, CPU_ACT_SLOPE, &affine);
}

static cod_status forward_run(cod_plan *plan)
{
    const strided_state *s = plan->state;
    cpu_fill_biased(floats(plan, 0), s->y.c, &plan->op);
    cpu_parallel_for(plan->device, s->y.n * s->groups, forward_task, plan);
    return COD_OK;
}

/*
 * Backward data. Pixel STRIDE·m + p of dx takes, of kernel column k = p + pad - STRIDE·j, pixel m + j of dy; likewise
 * lines.
 */

/**
 * Which of a kernel's lines or columns meet pixels of dx of one parity, by the pixel of dy, which is m + first + i for
 * the i-th.
 */
typedef struct strided_taps {
    int64_t first, count;
    int64_t last_k; /**< of the first pixel; each further one has STRIDE less */
} strided_taps;

static strided_taps taps_of(int64_t parity, int64_t pad, int64_t kernel)
{
    const int64_t low = (parity + pad) % STRIDE, count = (kernel - low + STRIDE - 1) / STRIDE;
    const int64_t last = low + STRIDE * (count - 1);
    return (strided_taps){(parity + pad - last) / STRIDE, count, last};
}

/** Where the weights of a parity begin among those packed, in pairs of kernel positions. */
static int64_t positions_before(const cod_op *op, cod_shape w, int64_t parity)
{
    int64_t before = 0;
    for (int64_t p = 0; p < parity; p++)
        before += taps_of(p / STRIDE, op->attr.pad_h, w.h).count * taps_of(p % STRIDE, op->attr.pad_w, w.w).count;
    return before;
}

static void pack_data_task(void *context, int64_t parity, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const strided_state *s = plan->state;
    const cod_shape w = s->w;
    const strided_taps high = taps_of(parity / STRIDE, plan->op.attr.pad_h, w.h);
    const strided_taps wide = taps_of(parity % STRIDE, plan->op.attr.pad_w, w.w);
    const float *from = cod_view_host(&plan->op.inputs[1]);
    float *to = s->packed + positions_before(&plan->op, w, parity) * w.n * w.c;
    for (int64_t i = 0; i < high.count; i++) {
        for (int64_t column = 0, width; column < w.c; column += width) {
            width = panel_width(s, column, w.c);
            for (int64_t k = 0; k < wide.count; k++) {
                const int64_t position = (high.last_k - STRIDE * i) * w.w + wide.last_k - STRIDE * k;
                for (int64_t o = 0; o < w.n; o++, to += width)
                    memcpy(to, from + (o * w.h * w.w + position) * w.c + column, (size_t)width * sizeof *to);
            }
        }
    }
}

static cod_status prepare_data(cod_plan *plan)
{
    cpu_parallel_for(plan->device, STRIDE * STRIDE, pack_data_task, plan);
    return COD_OK;
}

/** One panel of the pixels of dx of one parity, in lines STRIDE·m + parity from m = `first` on. */
static void data_panel(const cod_plan *plan, const float *copy, int64_t n, int64_t first, int64_t parity,
                       int64_t column, int64_t width)
{
    const strided_state *s = plan->state;
    const cod_op *op = &plan->op;
    const int64_t down = parity / STRIDE, right = parity % STRIDE;
    const strided_taps high = taps_of(down, op->attr.pad_h, s->w.h), wide = taps_of(right, op->attr.pad_w, s->w.w);
    const int64_t depth = wide.count * s->y.c;
    const float *packed = s->packed + positions_before(op, s->w, parity) * s->w.n * s->w.c;
    for (int64_t m = first; m < first + s->lines && STRIDE * m + down < s->x.h; m++) {
        const int64_t pixel = (n * s->x.h + STRIDE * m + down) * s->x.w + right;
        for (int64_t i = 0; i < high.count; i++) {
            const int64_t line = m - first + s->before + high.first + i;
            const cpu_product product = {.a = lanes(copy + (line * s->pitch + s->before + wide.first) * s->y.c),
                                         .b = lanes(packed + (i * s->x.c + column) * depth),
                                         .c = (float *)(void *)s->x_rows.data + pixel * s->x_rows.stride + column,
                                         .rows = (s->x.w - right + STRIDE - 1) / STRIDE,
                                         .depth = depth,
                                         .columns = width,
                                         .a_row = s->y.c,
                                         .a_depth = 1,
                                         .b_stride = width,
                                         .c_stride = STRIDE * s->x_rows.stride,
                                         .accumulate = op->accumulate || i > 0};
            plan->device->kernels->product(&product, false);
        }
    }
}

static void data_task(void *context, int64_t i, int thread)
{
    const cod_plan *plan = context;
    const strided_state *s = plan->state;
    const int64_t n = i / s->groups, first = i % s->groups * s->lines;
    float *copy = (float *)(void *)cpu_thread_scratch(plan, s->shared_bytes, s->thread_bytes, thread);
    for (int64_t line = 0; line < s->lines + 2 * s->before; line++)
        copy_line(s->y_rows, s->y, line_of(s->y_rows, s->y, n, first + line - s->before), -s->before, s->pitch,
                  copy + line * s->pitch * s->y.c);
    for (int64_t parity = 0; parity < STRIDE * STRIDE; parity++) {
        for (int64_t column = 0, width; column < s->x.c; column += width) {
            width = panel_width(s, column, s->x.c);
            data_panel(plan, copy, n, first, parity, column, width);
        }
    }
}

static cod_status data_run(cod_plan *plan)
{
    const strided_state *s = plan->state;
    cpu_parallel_for(plan->device, s->x.n * s->groups, data_task, plan);
    return COD_OK;
}

/* Weight gradients. A chunk is some lines of a picture, or some small pictures. */

typedef struct strided_chunk {
    const cod_plan *plan;
    int64_t first, lines; /**< of all pictures' lines of y */
} strided_chunk;

/** Pixels of a chunk's dy, and of each copy of its x; products of zeros read some pixels behind the last line. */
static int64_t chunk_pixels(const strided_state *s, bool x)
{
    return s->lines * s->pitch * (x ? STRIDE : 1) + (x ? s->w.w : 0);
}

static float *chunk_dy(const cod_plan *plan)
{
    return floats(plan, ((const strided_state *)plan->state)->shared_bytes);
}

/** The copy of x that line kh of the kernel meets. */
static float *chunk_x(const cod_plan *plan, int64_t kh)
{
    const strided_state *s = plan->state;
    return chunk_dy(plan) + chunk_pixels(s, false) * s->y.c + kh * chunk_pixels(s, true) * s->x.c;
}

/**
 * Copies pixels of a line, which may be NULL, the first being column `column`; zeros outside of the picture. `to` is
 * [panel of channels][all][channels of the panel], of which the pixels are written from `at` on.
 */
static void copy_panels(cpu_rows rows, cod_shape shape, const float *line, int64_t column, int64_t pixels,
                        int64_t panel, int64_t all, int64_t at, float *to)
{
    for (int64_t first = 0, width; first < shape.c; first += width) {
        width = cpu_least(shape.c - first, panel);
        float *pixel = to + first * all + at * width;
        for (int64_t i = 0; i < pixels; i++, pixel += width) {
            const bool inside = line != NULL && column + i >= 0 && column + i < shape.w;
            const float *from = inside ? line + (column + i) * rows.stride + first : NULL;
            for (int64_t c = 0; c < width; c += CPU_PAD) { /* of a size that the compiler sees */
                if (inside)
                    memcpy(pixel + c, from + c, CPU_PAD * sizeof *pixel);
                else
                    memset(pixel + c, 0, CPU_PAD * sizeof *pixel);
            }
        }
    }
}

static void copy_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const strided_chunk *chunk = context;
    const cod_plan *plan = chunk->plan;
    const strided_state *s = plan->state;
    const int64_t n = (chunk->first + i) / s->y.h, line = (chunk->first + i) % s->y.h;
    copy_panels(s->y_rows, s->y, line_of(s->y_rows, s->y, n, line), 0, s->pitch, OUTPUTS_AT_ONCE,
                chunk_pixels(s, false), i * s->pitch, chunk_dy(plan));
    const int64_t pixels = STRIDE * s->pitch + (i == chunk->lines - 1 ? s->w.w : 0);
    for (int64_t kh = 0; kh < s->w.h; kh++)
        copy_panels(s->x_rows, s->x, line_of(s->x_rows, s->x, n, STRIDE * line + kh - plan->op.attr.pad_h),
                    -plan->op.attr.pad_w, pixels, s->panel, chunk_pixels(s, true), i * STRIDE * s->pitch,
                    chunk_x(plan, kh));
}

/** The sums of some outputs at one position of the kernel. */
static void sum_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const strided_chunk *chunk = context;
    const cod_plan *plan = chunk->plan;
    const strided_state *s = plan->state;
    const int64_t positions = s->w.h * s->w.w, position = i % positions, o = i / positions * OUTPUTS_AT_ONCE;
    const int64_t outputs = cpu_least(s->w.n - o, OUTPUTS_AT_ONCE);
    const int64_t depth = chunk->lines * s->pitch, x_pixels = chunk_pixels(s, true);
    const float *dy = chunk_dy(plan) + o * chunk_pixels(s, false), *x = chunk_x(plan, position / s->w.w);
    float *dw = (float *)cod_view_host(&plan->op.outputs[0]) + (o * positions + position) * s->w.c;
    for (int64_t column = 0, width; column < s->w.c; column += width) {
        width = panel_width(s, column, s->w.c);
        for (int64_t first = 0; first < depth; first += DEPTH_AT_ONCE) {
            const cpu_product product = {
                .a = lanes(dy + first * outputs),
                .b = lanes(x + column * x_pixels + (STRIDE * first + position % s->w.w) * width),
                .c = dw + column,
                .rows = outputs,
                .depth = cpu_least(depth - first, DEPTH_AT_ONCE),
                .columns = width,
                .a_row = 1,
                .a_depth = outputs,
                .b_stride = STRIDE * width,
                .c_stride = positions * s->w.c,
                .accumulate = plan->op.accumulate || chunk->first > 0 || first > 0};
            plan->device->kernels->product(&product, false);
        }
    }
}

static cod_status gradient_run(cod_plan *plan)
{
    const strided_state *s = plan->state;
    const int64_t lines = s->y.n * s->y.h, tasks = (s->w.n + OUTPUTS_AT_ONCE - 1) / OUTPUTS_AT_ONCE * s->w.h * s->w.w;
    strided_chunk chunk = {.plan = plan};
    for (; chunk.first < lines; chunk.first += s->lines) {
        chunk.lines = cpu_least(lines - chunk.first, s->lines);
        cpu_parallel_for(plan->device, chunk.lines, copy_task, &chunk);
        cpu_parallel_for(plan->device, tasks, sum_task, &chunk);
    }
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

static cod_status alloc_packed(strided_state *s)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, (size_t)cod_shape_count(s->w) * sizeof(float)));
    s->packed = memory;
    return COD_OK;
}

static cod_status plan_tasks(cod_plan *plan, strided_state *s)
{
    const bool data = plan->op.kind == COD_OP_CONV2D_BACKWARD_DATA;
    const int64_t all_lines = data ? (s->x.h + STRIDE - 1) / STRIDE : s->y.h;
    const int64_t row = data ? (s->x.w + STRIDE - 1) / STRIDE : s->y.w;
    int64_t copied;
    s->lines = cpu_least((TASK_PIXELS + row - 1) / row, all_lines);
    s->groups = (all_lines + s->lines - 1) / s->lines;
    if (data) {
        s->before = cpu_greatest(s->w.h, s->w.w);
        s->pitch = row + 2 * s->before;
        copied = (s->lines + 2 * s->before) * s->pitch * s->y.c;
        plan->prepare = prepare_data;
        plan->run = data_run;
    } else {
        s->pitch = STRIDE * (s->y.w - 1) + s->w.w;
        copied = (STRIDE * (s->lines - 1) + s->w.h) * s->pitch * s->x.c;
        s->shared_bytes = cod_align_up(4 * (size_t)cpu_padded(s->y.c) * sizeof(float));
        plan->prepare = prepare_forward;
        plan->run = forward_run;
    }
    s->thread_bytes = cod_align_up((size_t)copied * sizeof(float));
    COD_TRY(alloc_packed(s));
    return cpu_plan_need_scratch(plan, s->shared_bytes + (size_t)plan->device->threads * s->thread_bytes);
}

static cod_status plan_gradient(cod_plan *plan, strided_state *s)
{
    s->pitch = s->y.w + (s->w.w - 1) / STRIDE;
    s->lines = cpu_least((CHUNK_PIXELS + s->pitch - 1) / s->pitch, s->y.n * s->y.h);
    s->shared_bytes = cod_align_up(3 * (size_t)cpu_padded(s->y.c) * sizeof(float)); /* the bias's gradient */
    plan->run = gradient_run;
    const int64_t copied = chunk_pixels(s, false) * s->y.c + s->w.h * chunk_pixels(s, true) * s->x.c;
    return cpu_plan_need_scratch(plan, s->shared_bytes + (size_t)copied * sizeof(float));
}

cod_status cpu_plan_strided(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const bool data = op->kind == COD_OP_CONV2D_BACKWARD_DATA, gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(strided_state)));
    plan->destroy = strided_destroy;
    strided_state *s = plan->state;
    const cod_view *x = data ? &op->outputs[0] : &op->inputs[0];
    const cod_view *y = gradient ? &op->inputs[1] : data ? &op->inputs[0] : &op->outputs[0];
    s->x = x->shape, s->y = y->shape, s->w = (gradient ? &op->outputs[0] : &op->inputs[1])->shape;
    s->x_rows = cpu_rows_of(x), s->y_rows = cpu_rows_of(y);
    s->panel = cpu_product_panel(plan->device);
    return gradient ? plan_gradient(plan, s) : plan_tasks(plan, s);
}
