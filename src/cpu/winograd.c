/*
 * 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3), with 2.25 times fewer products than directly, and in f32 by
 * his F(4x4, 3x3), with 4 times fewer. See kernels/winograd.c.inc and kernels/winograd4.c.inc for the transforms. Tiles
 * of 2x2 or 4x4 outputs are taken in blocks: transform, a matrix product for each of a tile's 16 or 36 positions,
 * transform back. Backward data is a forward convolution of dy with mirrored, transposed weights.
 */
#include "core/memory.h"
#include "cpu/cpu_internal.h"
#include "cpu/winograd_internal.h"

#include <string.h>

enum {
    MOST_POSITIONS = CPU_WINOGRAD4_POSITIONS,
    OUTPUT_BLOCK = 64, /**< channels of a block's products at a time */
    FORWARD_TILES = 48,
    FORWARD_BYTES = 192 * 1024, /**< of a block's transformed inputs */
    FORWARD_TILES_4 =
        24, /**< of 4x4 outputs: the weights, which do not fit the second-level cache, are read for each block */
    GRADIENT_BYTES = 512 * 1024, /**< of a chunk's transformed inputs and gradients, a thread */
    GRADIENT_TILES_4 = 96,       /**< of 4x4 outputs: so are the sums for each chunk */
    GROUP_TILES = 8,             /**< of a gradient's transforms, for one task */
    STRIP_TILES = 64,
    STRIP_PIXELS = (4 * STRIP_TILES + 2) * 6,
    SKEW_BYTES = 64, /**< keeps positions from sharing a set of the first-level cache */
};

/** A view whose pixels may be shuffled: `parts` images of h x w pixels of `channels`, whose pixels take turns. */
typedef struct winograd_image {
    const cod_view *view;
    int64_t factor, parts, h, w, channels;
} winograd_image;

typedef struct winograd_state {
    winograd_image from, to;               /**< weight gradients: x and dy */
    winograd_image addend;                 /**< what is added to `to`, which may be itself; view NULL = nothing */
    const cpu_winograd4_kernels *kernels4; /**< for tiles of 4x4 outputs; NULL = they are 2x2 */
    int64_t side, positions;               /**< of a tile's outputs, and of its transforms */
    int64_t panel;                         /**< columns of packed weights that lie beside each other, at most */
    bool bf16, flip;
    int64_t per_lane, element;
    int64_t pad_h; /**< 1, or 0 where the input has a line more above and below than the output */
    int64_t tiles_h, tiles_w, tiles;
    int64_t inputs, outputs;      /**< channels of `from` and `to` */
    int64_t from_pitch, to_pitch; /**< weight gradients: lanes from tile to tile of x and of dy */
    int64_t block;                /**< tiles of a block or chunk */
    int64_t position_bytes;       /**< of a block's inputs, and of a chunk's x */
    int64_t other_bytes;          /**< of a block's products, and of a chunk's dy */
    int32_t *packed;              /**< [position][panel][input lanes][outputs of the panel] */
    char *zeros;                  /**< a pixel outside of the image */
    size_t shared_bytes, thread_bytes;
} winograd_state;

static void winograd_destroy(void *memory)
{
    winograd_state *state = memory;
    cod_aligned_free(state->packed);
    cod_aligned_free(state->zeros);
    cod_aligned_free(state);
}

bool cpu_winograd_fits(const cod_device *device, const cod_op *op)
{
    const bool gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    if (op->kind != COD_OP_CONV2D && op->kind != COD_OP_CONV2D_BACKWARD_DATA && !gradient)
        return false;
    const cod_view *from = &op->inputs[0];
    const cod_shape w = (gradient ? &op->outputs[0] : &op->inputs[1])->shape;
    const bool same = w.h == 3 && w.w == 3 && op->attr.stride_h == 1 && op->attr.stride_w == 1 &&
                      (op->attr.pad_h == 1 || (op->attr.pad_h == 0 && op->kind == COD_OP_CONV2D)) &&
                      op->attr.pad_w == 1;
    const bool types = cpu_multiplies(device, from->dtype) && (!gradient || from->dtype == op->inputs[1].dtype);
    const bool slopes =
        op->kind != COD_OP_CONV2D || (op->attr.activation != COD_ACT_SIGMOID && op->attr.activation != COD_ACT_TANH);
    const int64_t parts = cod_op_shuffle(&op->attr) * cod_op_shuffle(&op->attr);
    return same && types && slopes && w.n % (parts * CPU_PAD) == 0 && w.c % CPU_PAD == 0;
}

bool cpu_winograd4_fits(const cod_device *device, const cod_op *op)
{
    return cpu_winograd_fits(device, op) && op->inputs[0].dtype == COD_F32;
}

static const cpu_winograd4_kernels *kernels4_of(const cod_device *device)
{
#if defined(__x86_64__)
    if (device->kernels == &cpu_kernels_avx2)
        return &cpu_winograd4_avx2;
    if (device->kernels != &cpu_kernels_generic)
        return &cpu_winograd4_avx512;
#endif
    (void)device;
    return &cpu_winograd4_generic;
}

int64_t cpu_product_panel(const cod_device *device)
{
    return kernels4_of(device)->panel;
}

static int64_t lanes_of(const winograd_state *s, int64_t elements)
{
    return (elements + s->per_lane - 1) / s->per_lane;
}

/**
 * Where an output channel of the layer lies among those that are computed: a shuffle takes its channels c·r² + part to
 * pixels, so they are put into the order part·C + c, and each part's channels are beside each other.
 */
static int64_t shuffled_channel(const winograd_image *image, int64_t o)
{
    return o % image->parts * image->channels + o / image->parts;
}

/** Outputs of the panel of packed weights that begins at output `column`; none has outputs of two parts. */
static int64_t panel_width(const winograd_state *s, int64_t column)
{
    return cpu_least(s->to.channels - column % s->to.channels, s->panel);
}

static void transform_weights_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const winograd_state *s = plan->state;
    const cod_view *w = &plan->op.inputs[1];
    const int64_t row_bytes = w->shape.c * s->element;
    const float *taps = (const float *)cod_view_host(w) + o * 9 * w->shape.c;
    char *u = plan->device->scratch + shuffled_channel(s->flip ? &s->from : &s->to, o) * row_bytes;
    if (s->kernels4 != NULL)
        s->kernels4->weights(taps, w->shape.c, s->flip, u, w->shape.n * row_bytes);
    else
        plan->device->kernels->winograd_weights(taps, w->shape.c, s->flip, s->bf16, u, w->shape.n * row_bytes);
}

static void pack_weights_task(void *context, int64_t position, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const winograd_state *s = plan->state;
    const cpu_kernels *kernels = plan->device->kernels;
    const cod_shape w = plan->op.inputs[1].shape;
    const int64_t row_bytes = w.c * s->element;
    const char *rows = plan->device->scratch + position * w.n * row_bytes;
    const int64_t depth = lanes_of(s, s->inputs);
    int32_t *packed = s->packed + position * depth * s->outputs;
    for (int64_t column = 0, width; column < s->outputs; column += width) {
        width = panel_width(s, column);
        if (s->flip)
            kernels->lanes_pair(rows + column * s->element, row_bytes, w.n, width, s->bf16, packed + column * depth,
                                width);
        else
            kernels->lanes_spread(rows + column * row_bytes, row_bytes, width, row_bytes, 0, packed + column * depth,
                                  width);
    }
}

static cod_status winograd_prepare(cod_plan *plan)
{
    cpu_parallel_for(plan->device, plan->op.inputs[1].shape.n, transform_weights_task, plan);
    cpu_parallel_for(plan->device, ((const winograd_state *)plan->state)->positions, pack_weights_task, plan);
    return COD_OK;
}

typedef struct winograd_run {
    const cod_plan *plan;
    const winograd_state *s;
    const float *bias, *slope;
    int64_t first, count; /**< of the chunk's tiles */
} winograd_run;

/** Where a tile lies: the first line and column of its outputs. */
typedef struct winograd_place {
    int64_t n, y, x;
} winograd_place;

static winograd_place place_of(const winograd_state *s, int64_t tile)
{
    const int64_t row = tile / s->tiles_w;
    return (winograd_place){row / s->tiles_h, row % s->tiles_h * s->side, tile % s->tiles_w * s->side};
}

/**
 * Columns of `height` pixels of a part from top to bottom, beside each other, the first at column x and line y;
 * `outside` where they are not in the image.
 */
static void columns_of(const winograd_image *image, int64_t part, winograd_place at, int64_t columns, int height,
                       char *outside, char **pixels)
{
    const cod_view *view = image->view;
    const int64_t bytes = view->pixel_stride * (view->dtype == COD_BF16 ? 2 : 4), r = image->factor;
    const int64_t h = image->h, w = image->w;
    char *picture = (char *)cod_view_host(view) + (at.n * r * h * r * w + part / r * r * w + part % r) * bytes;
    for (int64_t k = 0; k < columns; k++) {
        for (int i = 0; i < height; i++) {
            const int64_t y = at.y + i, x = at.x + k;
            const bool inside = y >= 0 && y < h && x >= 0 && x < w;
            pixels[k * height + i] = inside ? picture + (y * r * r * w + x * r) * bytes : outside;
        }
    }
}

/** Tiles from `tile` on that lie beside each other, as far as `end` and STRIP_TILES allow. */
static int64_t strip_length(const winograd_state *s, int64_t tile, int64_t end)
{
    return cpu_least(cpu_least(s->tiles_w - tile % s->tiles_w, end - tile), STRIP_TILES);
}

/** The columns that a strip's transform reads: one more on either side than the outputs. */
static void input_columns(const winograd_state *s, int64_t part, int64_t tile, int64_t tiles, char **pixels)
{
    winograd_place at = place_of(s, tile);
    at.y -= s->pad_h, at.x--;
    columns_of(&s->from, part, at, s->side * tiles + 2, (int)s->side + 2, s->zeros, pixels);
}

/** The pixels of a part from `channel` on. */
static cpu_rows rows_of_part(const winograd_image *image, int64_t part, int64_t channel)
{
    const int64_t r = image->factor;
    cpu_rows rows = cpu_rows_from(cpu_rows_of(image->view), part / r * r * image->w + part % r);
    rows.data += channel * (rows.bf16 ? 2 : 4);
    return rows;
}

/** Where the outputs of the tile at `at` lie in their part; those to be stored are inside of the image. */
static void output_pixels(const winograd_state *s, winograd_place at, int64_t *pixels)
{
    const int64_t right = s->to.factor, below = right * right * s->to.w;
    const int64_t first = (at.n * s->to.h + at.y) * below + at.x * right;
    for (int64_t i = 0; i < s->side; i++)
        for (int64_t k = 0; k < s->side; k++)
            pixels[i * s->side + k] = at.y + i < s->to.h && at.x + k < s->to.w ? first + i * below + k * right : -1;
}

/** Some outputs of a block, from their products. */
static void store_block(const winograd_run *run, const float *m, int64_t first, int64_t count, int64_t column,
                        int64_t columns)
{
    const winograd_state *s = run->s;
    const int64_t part = column / s->to.channels, channel = column % s->to.channels;
    const cpu_rows y = rows_of_part(&s->to, part, channel);
    const cpu_rows addend = s->addend.view != NULL ? rows_of_part(&s->addend, part, channel) : (cpu_rows){0};
    const float *bias = run->bias != NULL ? run->bias + column : NULL;
    const float *slope = run->slope != NULL ? run->slope + channel : NULL;
    const int64_t stride = s->other_bytes / (int64_t)sizeof(float);
    cpu_winograd_output out = {NULL, stride, columns, bias, slope, y, addend, {0}};
    cpu_winograd4_output out4 = {NULL, stride, columns, bias, slope, y, addend, {0}};
    for (int64_t t = 0; t < count; t++) {
        output_pixels(s, place_of(s, first + t), s->kernels4 != NULL ? out4.pixels : out.pixels);
        out.m = out4.m = m + t * columns;
        if (s->kernels4 != NULL)
            s->kernels4->output(&out4);
        else
            run->plan->device->kernels->winograd_output(&out);
    }
}

/** Products of one block's transformed inputs with the weights of some outputs, and these outputs. */
static void finish_block(const winograd_run *run, const char *v, float *m, int64_t first, int64_t count, int64_t column,
                         int64_t columns)
{
    const winograd_state *s = run->s;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int64_t depth = lanes_of(s, s->inputs), position = s->other_bytes / (int64_t)sizeof(float);
    for (int64_t p = 0; p < s->positions; p++) {
        for (int64_t done = 0, width; done < columns; done += width) {
            width = panel_width(s, column + done);
            const cpu_product product = {.a = (const int32_t *)(const void *)(v + p * s->position_bytes),
                                         .b = s->packed + (p * s->outputs + column + done) * depth,
                                         .c = m + p * position + done,
                                         .rows = count,
                                         .depth = depth,
                                         .columns = width,
                                         .a_row = depth,
                                         .a_depth = 1,
                                         .b_stride = width,
                                         .c_stride = columns};
            kernels->product(&product, s->bf16);
        }
    }
    store_block(run, m, first, count, column, columns);
}

/** Transforms a part of the inputs of tiles that lie beside each other. */
static void transform_strip(const winograd_run *run, int64_t part, int64_t tile, int64_t tiles, char *v,
                            int64_t tile_bytes)
{
    const winograd_state *s = run->s;
    char *pixels[STRIP_PIXELS];
    input_columns(s, part, tile, tiles, pixels);
    const cpu_winograd_strip strip = {.columns = (const char *const *)pixels,
                                      .tiles = tiles,
                                      .channels = s->from.channels,
                                      .v = v,
                                      .tile_bytes = tile_bytes,
                                      .position_bytes = s->position_bytes};
    if (s->kernels4 != NULL)
        s->kernels4->strip(&strip);
    else
        run->plan->device->kernels->winograd_strip(&strip, s->bf16);
}

static void block_task(void *context, int64_t i, int thread)
{
    const winograd_run *run = context;
    const winograd_state *s = run->s;
    const int64_t first = i * s->block, count = cpu_least(s->tiles - first, s->block);
    char *v = cpu_thread_scratch(run->plan, s->shared_bytes, s->thread_bytes, thread);
    float *m = (float *)(void *)(v + s->positions * s->position_bytes);
    for (int64_t t = 0, tiles; t < count; t += tiles) {
        tiles = strip_length(s, first + t, first + count);
        for (int64_t part = 0; part < s->from.parts; part++) {
            transform_strip(run, part, first + t, tiles, v + (t * s->inputs + part * s->from.channels) * s->element,
                            s->inputs * s->element);
        }
    }
    for (int64_t column = 0, columns; column < s->outputs; column += columns) {
        columns = cpu_least(s->to.channels - column % s->to.channels, OUTPUT_BLOCK);
        finish_block(run, v, m, first, count, column, columns);
    }
}

static cod_status convolve_run(cod_plan *plan)
{
    const winograd_state *s = plan->state;
    const cod_op *op = &plan->op;
    winograd_run run = {.plan = plan, .s = s};
    if (op->kind == COD_OP_CONV2D && cpu_present(&op->inputs[2])) {
        const float *given = cod_view_host(&op->inputs[2]);
        float *bias = (float *)(void *)plan->device->scratch + s->outputs;
        for (int64_t o = 0; o < s->outputs; o++)
            bias[shuffled_channel(&s->to, o)] = given[o];
        run.bias = bias;
    }
    if (op->kind == COD_OP_CONV2D && op->attr.activation != COD_ACT_NONE) {
        float *slope = (float *)(void *)plan->device->scratch;
        cpu_fill_slope(slope, s->to.channels, &op->attr, &op->inputs[3]);
        run.slope = slope;
    }
    cpu_parallel_for(plan->device, (s->tiles + s->block - 1) / s->block, block_task, &run);
    return COD_OK;
}

/* Weight gradients: chunks of tiles are transformed, tile by tile, then summed into the sixteen products, position by
 * position. Each sum runs over the tiles in their order, however many threads there are. */

static char *chunk_x(const winograd_run *run)
{
    return run->plan->device->scratch + run->s->shared_bytes;
}

static char *chunk_dy(const winograd_run *run)
{
    return chunk_x(run) + run->s->positions * run->s->position_bytes;
}

/** Transforms a group of tiles of x, or of dy. */
static void transform_group(const winograd_run *run, int64_t i, bool gradient)
{
    const winograd_state *s = run->s;
    const winograd_image *image = gradient ? &s->to : &s->from;
    const int64_t count = cpu_least(run->count - i * GROUP_TILES, GROUP_TILES), first = run->first + i * GROUP_TILES;
    for (int64_t part = 0; part < image->parts; part++) {
        char *columns[GROUP_TILES][16];
        for (int64_t t = 0; t < GROUP_TILES; t++) {
            for (int p = 0; p < 16; p++)
                columns[t][p] = s->zeros; /* after the last tile */
            if (t < count && gradient)
                columns_of(image, part, place_of(s, first + t), 2, 2, s->zeros, columns[t]);
            else if (t < count)
                input_columns(s, part, first + t, 1, columns[t]);
        }
        for (int64_t t = 0; t < count; t += s->per_lane) {
            const int64_t lane = (i * GROUP_TILES + t) / s->per_lane;
            const int64_t at = lane * (gradient ? s->outputs : s->inputs) + part * image->channels;
            const cpu_winograd_lanes lanes = {.first = (const char *const *)columns[t],
                                              .second = (const char *const *)columns[t + s->per_lane - 1],
                                              .channels = image->channels,
                                              .v = (gradient ? chunk_dy(run) : chunk_x(run)) + 4 * at,
                                              .position_bytes = gradient ? s->other_bytes : s->position_bytes};
            run->plan->device->kernels->winograd_lanes(&lanes, gradient, s->bf16);
        }
    }
}

/** Transforms a group of tiles of 4x4 outputs, of x and of dy. */
static void transform_group4(const winograd_run *run, int64_t i)
{
    const winograd_state *s = run->s;
    const int64_t begin = i * GROUP_TILES, end = cpu_least(begin + GROUP_TILES, run->count);
    const int64_t x_bytes = s->from_pitch * 4, dy_bytes = s->to_pitch * 4;
    for (int64_t t = begin, tiles; t < end; t += tiles) {
        tiles = strip_length(s, run->first + t, run->first + end);
        transform_strip(run, 0, run->first + t, tiles, chunk_x(run) + t * x_bytes, x_bytes);
    }
    for (int64_t t = begin; t < end; t++) {
        for (int64_t part = 0; part < s->to.parts; part++) {
            char *columns[16];
            columns_of(&s->to, part, place_of(s, run->first + t), 4, 4, s->zeros, columns);
            s->kernels4->spread((const char *const *)columns, s->to.channels,
                                chunk_dy(run) + t * dy_bytes + part * s->to.channels * 4, s->other_bytes);
        }
    }
}

static void transform_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const winograd_run *run = context;
    if (run->s->kernels4 != NULL) {
        transform_group4(run, i);
        return;
    }
    transform_group(run, i, false);
    transform_group(run, i, true);
}

static void sum_task(void *context, int64_t position, int thread)
{
    (void)thread;
    const winograd_run *run = context;
    const winograd_state *s = run->s;
    const cpu_product product = {.a = (const int32_t *)(const void *)(chunk_dy(run) + position * s->other_bytes),
                                 .b = (const int32_t *)(const void *)(chunk_x(run) + position * s->position_bytes),
                                 .c = (float *)(void *)run->plan->device->scratch + position * s->outputs * s->inputs,
                                 .rows = s->outputs,
                                 .depth = lanes_of(s, run->count),
                                 .columns = s->inputs,
                                 .a_row = 1,
                                 .a_depth = s->to_pitch,
                                 .b_stride = s->from_pitch,
                                 .c_stride = s->inputs,
                                 .accumulate = run->first > 0};
    run->plan->device->kernels->product(&product, s->bf16);
}

static void taps_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const winograd_run *run = context;
    const winograd_state *s = run->s;
    const float *sums =
        (const float *)(const void *)run->plan->device->scratch + shuffled_channel(&s->to, o) * s->inputs;
    float *dw = (float *)cod_view_host(&run->plan->op.outputs[0]) + o * 9 * s->inputs;
    (s->kernels4 != NULL ? s->kernels4->taps : run->plan->device->kernels->winograd_taps)(
        sums, s->outputs * s->inputs, s->inputs, dw, run->plan->op.accumulate);
}

static cod_status gradient_run(cod_plan *plan)
{
    const winograd_state *s = plan->state;
    winograd_run run = {.plan = plan, .s = s};
    for (; run.first < s->tiles; run.first += s->block) {
        run.count = cpu_least(s->tiles - run.first, s->block);
        cpu_parallel_for(plan->device, (run.count + GROUP_TILES - 1) / GROUP_TILES, transform_task, &run);
        cpu_parallel_for(plan->device, s->positions, sum_task, &run);
    }
    cpu_parallel_for(plan->device, s->outputs, taps_task, &run);
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

static cod_status alloc_bytes(void *pointer, int64_t bytes)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, (size_t)bytes));
    memcpy(pointer, &memory, sizeof memory);
    return COD_OK;
}

static cod_status plan_forward(cod_plan *plan, winograd_state *s)
{
    const int64_t row_bytes = s->inputs * s->element;
    s->block = cpu_least(cpu_greatest(FORWARD_BYTES / (s->positions * row_bytes), 6), FORWARD_TILES) / 6 * 6;
    if (s->kernels4 != NULL)
        s->block = FORWARD_TILES_4;
    s->position_bytes = s->block * row_bytes + SKEW_BYTES;
    s->other_bytes = s->block * OUTPUT_BLOCK * (int64_t)sizeof(float) + SKEW_BYTES;
    s->thread_bytes = (size_t)(s->positions * (s->position_bytes + s->other_bytes));
    s->shared_bytes = 2 * (size_t)s->outputs * sizeof(float); /* slopes, bias */
    COD_TRY(alloc_bytes(&s->packed, s->positions * lanes_of(s, s->inputs) * s->outputs * (int64_t)sizeof(int32_t)));
    plan->prepare = winograd_prepare;
    plan->run = convolve_run;
    const size_t unpacked = (size_t)(s->positions * s->inputs * s->outputs * s->element);
    COD_TRY(cpu_plan_need_scratch(plan, unpacked)); /* by winograd_prepare() */
    return cpu_plan_need_scratch(plan, s->shared_bytes + (size_t)plan->device->threads * s->thread_bytes);
}

static cod_status plan_gradient(cod_plan *plan, winograd_state *s)
{
    const int64_t tile_bytes = s->positions * (s->inputs + s->outputs) * s->element, threads = plan->device->threads;
    const int64_t tiles = s->kernels4 != NULL
                              ? GRADIENT_TILES_4
                              : cpu_least(cpu_greatest(GRADIENT_BYTES / tile_bytes, 2 * GROUP_TILES), 32 * GROUP_TILES);
    /* Lines of a power of two bytes would share few sets of the first-level cache. */
    s->from_pitch = s->inputs + (s->kernels4 != NULL ? CPU_PAD : 0);
    s->to_pitch = s->outputs + (s->kernels4 != NULL ? CPU_PAD : 0);
    s->block = tiles / GROUP_TILES * GROUP_TILES * threads;
    s->position_bytes = lanes_of(s, s->block) * s->from_pitch * 4 + SKEW_BYTES;
    s->other_bytes = lanes_of(s, s->block) * s->to_pitch * 4 + SKEW_BYTES;
    s->shared_bytes = (size_t)(s->positions * s->inputs * s->outputs) * sizeof(float);
    plan->run = gradient_run;
    return cpu_plan_need_scratch(plan, s->shared_bytes + (size_t)(s->positions * (s->position_bytes + s->other_bytes)));
}

static winograd_image image_of(const cod_view *view, int64_t factor)
{
    return (winograd_image){view,         factor, factor * factor, view->shape.h / factor, view->shape.w / factor,
                            view->shape.c};
}

static cod_status create(cod_plan *plan, const cpu_winograd4_kernels *kernels4)
{
    const cod_op *op = &plan->op;
    const bool gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(winograd_state)));
    plan->destroy = winograd_destroy;
    winograd_state *s = plan->state;
    s->kernels4 = kernels4;
    s->side = kernels4 != NULL ? 4 : 2;
    s->positions = (s->side + 2) * (s->side + 2);
    s->panel = cpu_product_panel(plan->device);
    s->flip = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    s->from = image_of(&plan->op.inputs[0], s->flip ? cod_op_shuffle(&op->attr) : 1);
    s->to = image_of(gradient ? &plan->op.inputs[1] : &plan->op.outputs[0], s->flip ? 1 : cod_op_shuffle(&op->attr));
    if (op->kind == COD_OP_CONV2D && cpu_present(&op->inputs[4]))
        s->addend = image_of(&plan->op.inputs[4], s->to.factor);
    else if (s->flip && op->accumulate)
        s->addend = s->to;
    s->bf16 = s->from.view->dtype == COD_BF16;
    s->per_lane = s->bf16 ? 2 : 1;
    s->element = s->bf16 ? 2 : 4;
    s->pad_h = op->attr.pad_h;
    s->tiles_h = (s->to.h + s->side - 1) / s->side, s->tiles_w = (s->to.w + s->side - 1) / s->side;
    s->tiles = s->to.view->shape.n * s->tiles_h * s->tiles_w;
    s->inputs = s->from.channels * s->from.parts, s->outputs = s->to.channels * s->to.parts;
    COD_TRY(alloc_bytes(&s->zeros, cpu_greatest(s->inputs, s->outputs) * 4));
    return gradient ? plan_gradient(plan, s) : plan_forward(plan, s);
}

cod_status cpu_plan_winograd(cod_plan *plan)
{
    return create(plan, NULL);
}

cod_status cpu_plan_winograd4(cod_plan *plan)
{
    return create(plan, kernels4_of(plan->device));
}
