/*
 * Plans of weight gradients, of one layer or of many equal ones: which kernel, how many splits, and the memory between.
 */
#include "cuda/conv_gradient3.cuh"
#include "cuda/conv_plan.cuh"
#include "cuda/scratch.cuh"

extern "C" {
#include "core/fused.h"
}

#include <climits>
#include <cstdlib>

struct gradient_state {
    conv_operands operands;
    int choice; /**< number of the kernel to take, CONV_BY_COST or CONV_THREE */
    int layers;
    conv_gradient gradient;
    conv_gradient_kernel kernel;
    gradient3_choice three; /**< where its kernel has channels, it is run in place of `kernel` */
    conv_join join;
    size_t partials_bytes;
    cuda_scratch *scratch; /**< of partial sums */
    conv_layer *table;     /**< in the device's memory */
    bool bias;             /**< some layer has db */
    dim3 blocks;
    conv_staging *stagings; /**< of x and dy of each layer, behind this struct */
};

/** Floats of partial sums that a plan may have: 256 MB. */
static const int64_t most_floats = (int64_t)1 << 26;

/* What is computed. */

/** The layers' common operands, with the first one's addresses. Images are wide only where those of all layers are. */
static conv_gradient describe(const cod_op *ops, int layers)
{
    const cod_op_attr attr = conv_attributes(ops);
    const cod_view *w = &ops->outputs[0];
    conv_gradient g = {};
    g.x = conv_image_of(&ops->inputs[0], 1);
    g.dy = conv_image_of(&ops->inputs[1], cod_op_shuffle(&attr));
    for (int i = 1; i < layers; i++) {
        g.x.wide = g.x.wide && conv_image_of(&ops[i].inputs[0], 1).wide;
        g.dy.wide = g.dy.wide && conv_image_of(&ops[i].inputs[1], 1).wide;
    }
    g.h = conv_side_of(g.dy.h, static_cast<int>(w->shape.h), attr.stride_h, attr.pad_h, false);
    g.w = conv_side_of(g.dy.w, static_cast<int>(w->shape.w), attr.stride_w, attr.pad_w, false);
    g.images = static_cast<int>(ops->inputs[0].shape.n);
    g.rows = static_cast<int>(w->shape.n);
    return g;
}

static int64_t partial_count_of(int64_t rows, int64_t columns)
{
    return cuda_divide_up(rows * (columns + 1), 4) * 4;
}

/* The kernel of any shape. */

enum { LEAST_SPLIT = 4, BLOCKS_EACH = 2 };

/** Chunks are split until each multiprocessor gets BLOCKS_EACH blocks; a block keeps LEAST_SPLIT chunks or more. */
static int64_t splits_of(const cod_device *device, int64_t blocks, int64_t chunks, int64_t partial_floats)
{
    int64_t splits = cuda_divide_up((int64_t)device->multiprocessors * BLOCKS_EACH, blocks);
    if (splits > chunks / LEAST_SPLIT)
        splits = chunks / LEAST_SPLIT;
    if (splits > most_floats / partial_floats)
        splits = most_floats / partial_floats;
    return splits < 1 ? 1 : splits;
}

static conv_gradient_kernel choose_kernel(const cod_device *device, const gradient_state *state, int64_t pixels)
{
    const conv_gradient *g = &state->gradient;
    const conv_gradient_kernel *best = nullptr;
    double least = 0;
    if (state->choice >= 0)
        return conv_gradient_kernels(state->operands.dtype)[state->choice];
    for (const conv_gradient_kernel *kernel = conv_gradient_kernels(state->operands.dtype); kernel->rows > 0;
         kernel++) {
        const int64_t tiles = cuda_divide_up(g->rows, kernel->rows) * cuda_divide_up(g->columns, kernel->columns);
        const int64_t blocks = tiles * state->layers *
                               splits_of(device, tiles * state->layers, cuda_divide_up(pixels, kernel->depth),
                                         g->partial_count * state->layers);
        const double idle = blocks < device->multiprocessors
                                ? static_cast<double>(device->multiprocessors) / static_cast<double>(blocks)
                                : 1;
        const double cost = static_cast<double>(tiles * kernel->rows * kernel->columns) / kernel->speed * idle;
        if (kernel->shared_bytes > device->shared_bytes || (best != nullptr && cost >= least))
            continue;
        best = kernel;
        least = cost;
    }
    return *best;
}

static void split_pixels(const cod_device *device, gradient_state *state)
{
    conv_gradient *g = &state->gradient;
    const int64_t pixels = (int64_t)g->images * g->h.outputs * g->w.outputs, layers = state->layers;
    const conv_gradient_kernel kernel = choose_kernel(device, state, pixels);
    const int64_t chunks = cuda_divide_up(pixels, kernel.depth),
                  column_tiles = cuda_divide_up(g->columns, kernel.columns);
    const int64_t tiles = cuda_divide_up(g->rows, kernel.rows) * column_tiles;
    const int64_t split_chunks =
        cuda_divide_up(chunks, splits_of(device, tiles * layers, chunks, g->partial_count * layers));
    state->kernel = kernel;
    g->chunks = static_cast<int>(chunks);
    g->split_chunks = static_cast<int>(split_chunks);
    g->column_tiles = static_cast<int>(column_tiles);
    state->blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(cuda_divide_up(chunks, split_chunks)),
                         static_cast<unsigned>(layers));
}

/* The kernel of 3x3. */

/**
 * Tiles of one picture's pixels in dy, and their cost in pixels: a tile's products, and what each tile costs beside
 * them. Of equal ones that which reads fewer pixels around it.
 */
static double tile_cost(const conv_gradient &g, gradient3_tile tile)
{
    const int64_t tiles = cuda_divide_up(g.h.outputs, tile.rows) * cuda_divide_up(g.w.outputs, tile.columns);
    const int pixels = tile.rows * tile.columns, halo = (tile.rows + 2) * (tile.columns + 2);
    return static_cast<double>(tiles) * (pixels + 8 + 0.05 * halo);
}

static gradient3_tile choose_tile(const conv_gradient &g)
{
    static const gradient3_tile tiles[] = {{4, 24}, {12, 8}, {8, 8},  {4, 8},  {6, 16},
                                           {4, 16}, {2, 16}, {3, 32}, {2, 32}, {1, 32}};
    gradient3_tile best = tiles[0];
    for (const gradient3_tile &tile : tiles)
        if (tile_cost(g, tile) < tile_cost(g, best))
            best = tile;
    return best;
}

/**
 * Splits of `tiles` tiles for `blocks` blocks of each split, of which `slots` run at a time. In units of a tile's time:
 * a block costs START beside its tiles, and each split's partial sums are written and read.
 */
static int64_t splits3_of(int64_t blocks, int64_t tiles, int64_t slots, int64_t most, double *least)
{
    const double start = 2, join = 3.0 / static_cast<double>(slots);
    int64_t best = 1;
    for (int64_t splits = 1; splits <= tiles && splits <= most && splits <= 2 * slots; splits++) {
        const int64_t rounds = cuda_divide_up(blocks * splits, slots);
        const double cost = static_cast<double>(rounds) * (static_cast<double>(cuda_divide_up(tiles, splits)) + start) +
                            join * static_cast<double>(blocks * splits);
        if (splits > 1 && cost >= *least)
            continue;
        best = splits;
        *least = cost;
    }
    return best;
}

/**
 * Whether the kernel of 3x3 computes this at all, and wastes no more than half of its products on what is not there.
 */
static bool fits3(const conv_gradient &g, gradient3_tile tile)
{
    const bool shape = !g.w.folded && g.h.kernel == 3 && g.w.kernel == 3 && g.h.stride == 1 && g.w.stride == 1;
    const bool images = g.x.dtype == COD_BF16 && g.dy.dtype == COD_BF16 && g.x.wide && g.dy.wide;
    if (!shape || !images || g.x.channels % 16 != 0 || g.rows % 16 != 0 || g.x.stride > INT_MAX / 64 ||
        g.dy.stride > INT_MAX / 64 / g.dy.factor)
        return false;
    const int64_t computed =
        cuda_divide_up(g.h.outputs, tile.rows) * cuda_divide_up(g.w.outputs, tile.columns) * tile.rows * tile.columns;
    return computed <= 2 * (int64_t)g.h.outputs * g.w.outputs;
}

gradient3_choice gradient3_choose(const cod_device *device, const conv_gradient &g, int layers)
{
    const gradient3_tile tile = choose_tile(g);
    gradient3_choice choice = {};
    if (!fits3(g, tile))
        return choice;
    conv_gradient3 *o = &choice.operands;
    o->x = g.x;
    o->dy = g.dy;
    o->pad_h = g.h.pad;
    o->pad_w = g.w.pad;
    o->rows = g.rows;
    o->tile = tile;
    o->walk_x = gradient3_walk_of(tile.rows + 2, tile.columns + 2);
    o->walk_y = gradient3_walk_of(tile.rows, tile.columns);
    o->tiles_h = static_cast<int>(cuda_divide_up(g.h.outputs, tile.rows));
    o->tiles_w = static_cast<int>(cuda_divide_up(g.w.outputs, tile.columns));
    o->tiles = g.images * o->tiles_h * o->tiles_w;
    o->partial_count = partial_count_of(g.rows, (int64_t)9 * g.x.channels);
    double least = 0;
    for (const gradient3_kernel *kernel = gradient3_kernels(); kernel->channels > 0; kernel++) {
        const int stage_bytes = gradient3_stage_bytes(*kernel, tile);
        const size_t shared_bytes = static_cast<size_t>(kernel->stages * stage_bytes);
        if (shared_bytes > device->shared_bytes)
            continue;
        const int64_t column_tiles = cuda_divide_up(g.x.channels, kernel->channels),
                      tiles = cuda_divide_up(g.rows, kernel->channels) * column_tiles;
        const int64_t resident = static_cast<int64_t>(device->shared_bytes / shared_bytes),
                      each = resident < kernel->blocks ? resident : kernel->blocks;
        double cost = 0;
        const int64_t splits = splits3_of(tiles * layers, o->tiles, each * device->multiprocessors,
                                          most_floats / (o->partial_count * layers), &cost);
        /* Blocks that share a multiprocessor take longer, each. */
        cost *= static_cast<double>(kernel->channels * kernel->channels * each) / kernel->speed;
        if (choice.kernel.channels > 0 && cost >= least)
            continue;
        least = cost;
        choice.kernel = *kernel;
        choice.shared_bytes = shared_bytes;
        o->stage_bytes = stage_bytes;
        o->column_tiles = static_cast<int>(column_tiles);
        choice.blocks =
            dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(splits), static_cast<unsigned>(layers));
    }
    return choice;
}

/* Plans. */

/** Of layer `i`; copies where the layers' images cannot be read in pieces, all of one shape. */
static conv_layer lay_out_layer(const cod_op *op, gradient_state *state, int i, conv_image *x, conv_image *dy,
                                conv_side *w, conv_memory *memory)
{
    x->data = cuda_view_of(&op->inputs[0]).data;
    dy->data = cuda_view_of(&op->inputs[1]).data;
    state->gradient.groups = conv_stage_image(state->operands, x, w, &state->stagings[2 * i], memory);
    conv_stage_image(state->operands, dy, nullptr, &state->stagings[2 * i + 1], memory);
    return {x->data, dy->data, cuda_floats_of(&op->outputs[0]), cuda_floats_of(&op->outputs[1])};
}

/** @param table  [layers], of the host */
static void lay_out(const cod_plan *plan, gradient_state *state, conv_layer *table, conv_memory *memory)
{
    const conv_gradient described = describe(plan->ops, state->layers);
    conv_gradient *g = &state->gradient;
    *g = described;
    state->table = conv_take<conv_layer>(memory, state->layers);
    bool wide = g->x.channels % 4 == 0 && plan->ops[0].outputs[0].pixel_stride % 4 == 0;
    for (int i = 0; i < state->layers; i++) {
        g->x = described.x;
        g->dy = described.dy;
        g->w = described.w;
        table[i] = lay_out_layer(&plan->ops[i], state, i, &g->x, &g->dy, &g->w, memory);
        wide = wide && reinterpret_cast<uintptr_t>(table[i].dw) % 16 == 0;
        state->bias = state->bias || table[i].db != nullptr;
    }
    const int piece = state->operands.dtype == COD_F32 ? 1 : 8, taps_w = g->w.folded ? 1 : g->w.kernel;
    g->columns = g->h.kernel * taps_w * g->groups * piece;
    g->partial_count = partial_count_of(g->rows, g->columns);
    g->layers = state->table;
    state->three = state->choice < 0 ? gradient3_choose(plan->device, *g, state->layers) : gradient3_choice();
    if (state->three.kernel.channels > 0)
        state->blocks = state->three.blocks;
    else
        split_pixels(plan->device, state);
    state->partials_bytes = static_cast<size_t>(g->partial_count * state->blocks.y * state->layers) * sizeof(float);
    state->three.operands.layers = state->table;
    conv_join *join = &state->join;
    join->layers = state->table;
    join->partial_count = g->partial_count;
    join->splits = static_cast<int>(state->blocks.y);
    join->columns = g->columns;
    join->tap_columns = g->groups * piece;
    join->folded = g->w.folded;
    join->wide = wide && g->columns % 4 == 0;
}

static cod_status gradients_run(const cod_plan *plan, cudaStream_t stream)
{
    const gradient_state *state = static_cast<const gradient_state *>(plan->state);
    for (int i = 0; i < 2 * state->layers; i++)
        COD_TRY(conv_stage(plan->device, state->stagings[i], stream));
    const gradient3_choice *three = &state->three;
    float *partials = cuda_scratch_use(state->scratch);
    conv_gradient3 operands = three->operands;
    conv_gradient gradient = state->gradient;
    conv_join join = state->join;
    operands.partials = gradient.partials = partials;
    join.partials = partials;
    if (three->kernel.channels > 0)
        COD_TRY(cuda_launch_chained(plan->device, stream, three->kernel.run, state->blocks, three->kernel.threads,
                                    three->shared_bytes, operands));
    else
        COD_TRY(cuda_launch_chained(plan->device, stream, state->kernel.run, state->blocks, state->kernel.threads,
                                    state->kernel.shared_bytes, gradient));
    return conv_join_partials(plan->device, join, state->layers, state->bias, stream);
}

static void gradients_clear(const cod_plan *plan)
{
    cuda_scratch_leave(static_cast<const gradient_state *>(plan->state)->scratch);
}

static cod_status make_with_table(cod_plan *plan, gradient_state *state, conv_layer *table)
{
    conv_memory memory = {};
    lay_out(plan, state, table, &memory); /* counts */
    COD_TRY(cuda_plan_memory(plan, memory.used));
    plan->clear = gradients_clear;
    COD_TRY(cuda_scratch_join(plan->device, plan->ops->inputs[1].buffer, state->partials_bytes, &state->scratch));
    memory = {reinterpret_cast<uintptr_t>(plan->memory), 0};
    lay_out(plan, state, table, &memory);
    return cuda_plan_write(plan, state->table, table, static_cast<size_t>(state->layers) * sizeof *table);
}

/** @param stagings  [2 * plan->count] */
static void state_init(const cod_plan *plan, int choice, gradient_state *state, conv_staging *stagings)
{
    const cod_op *op = plan->ops;
    const cod_op_attr attr = conv_attributes(op);
    *state = {};
    state->choice = choice;
    state->layers = static_cast<int>(plan->count);
    state->stagings = stagings;
    state->operands = {conv_multiplied_type(op, &attr), static_cast<int>(op->inputs[0].shape.n), 0};
    state->join.filter = conv_filter_of(&op->outputs[0], static_cast<int>(cod_op_shuffle(&attr)), false);
    state->join.accumulate = op->accumulate;
}

cod_status conv_make_gradients(cod_plan *plan, int choice)
{
    if (cod_shape_count(plan->ops->outputs[0].shape) > INT_MAX)
        return cod_fail(COD_ERR_UNSUPPORTED, "more than %d weights in one layer", INT_MAX);
    COD_TRY(cuda_plan_state(plan, sizeof(gradient_state) + 2 * plan->count * sizeof(conv_staging)));
    gradient_state *state = static_cast<gradient_state *>(plan->state);
    state_init(plan, choice, state, reinterpret_cast<conv_staging *>(state + 1));
    conv_layer *table = static_cast<conv_layer *>(calloc(plan->count, sizeof *table));
    COD_REQUIRE_MEMORY(table);
    const cod_status status = make_with_table(plan, state, table);
    free(table);
    COD_TRY(status);
    plan->run = gradients_run;
    if (state->three.kernel.channels > 0)
        return cuda_allow_shared(state->three.kernel.run, plan->device->shared_bytes);
    return cuda_allow_shared(state->kernel.run, state->kernel.shared_bytes);
}

cod_status cuda_make_gradients(cod_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        COD_TRY(conv_check(&plan->ops[i]));
    return conv_make_gradients(plan, CONV_BY_COST);
}

void conv_gradient_candidates(const cod_plan *plan, cuda_candidates *list)
{
    gradient_state state;
    conv_staging stagings[2];
    conv_layer table;
    conv_memory memory = {};
    state_init(plan, CONV_BY_COST, &state, stagings);
    lay_out(plan, &state, &table, &memory); /* counts, and chooses */
    if (state.three.kernel.channels > 0) {
        cuda_candidates_add(list, "own-3x3", {conv_make_own, nullptr, CONV_THREE});
        split_pixels(plan->device, &state);
    }
    conv_add_kernels(plan->device, conv_gradient_kernels(state.operands.dtype), state.kernel, list);
}

/* Which layers are one plan. */

/** Whether kernels read the view itself; copies of all layers' views at a time would take too much memory. */
static bool read_in_place(const cod_view *view, cod_dtype multiplied)
{
    return view->dtype == multiplied &&
           (multiplied == COD_F32 || (view->shape.c % 8 == 0 && view->pixel_stride % 8 == 0));
}

size_t cuda_gradients_fuse(const cod_device *, const cod_op *ops, size_t count)
{
    static const int64_t most_layers = 1024;
    const cod_op *op = &ops[0];
    const size_t alike = cod_fused_sequence(ops, count).count;
    if (alike < 2 || op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return 1;
    const cod_op_attr attr = conv_attributes(op);
    const cod_dtype multiplied = conv_multiplied_type(op, &attr);
    if (!read_in_place(&op->inputs[0], multiplied) || !read_in_place(&op->inputs[1], multiplied))
        return 1;
    const cod_shape w = op->outputs[0].shape;
    const int64_t most = most_floats / partial_count_of(w.n, w.h * w.w * w.c);
    const size_t limit = static_cast<size_t>(most < 1 ? 1 : most < most_layers ? most : most_layers);
    return alike < limit ? alike : limit;
}
