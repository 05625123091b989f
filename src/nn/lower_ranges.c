/* Convolutions on 8-bit integers: reading their ranges, and programs that observe what the ranges are to be. */
#include "nn/lower_internal.h"

#include "core/int8_range.h"

/** The executable's ranges from `first` on. */
static int range_tensor(lowering *lower, size_t first, size_t count)
{
    const ir_context *context = lower->context;
    return lower_placed_tensor(lower, (cod_shape){1, 1, 1, (int64_t)count}, COD_F32, IR_IO,
                               context->range_offset + first * sizeof(float));
}

/** Counts the magnitudes of what a convolution reads, together with those of others that share its range. */
static void observe(lowering *lower, size_t range, int x)
{
    const cod_shape all = {1, (int64_t)lower->context->range_count, 1, COD_MAGNITUDES}, one = {1, 1, 1, COD_MAGNITUDES};
    const bool another = lower->range_counts[range] != 0;
    if (lower->counts == 0)
        lower->counts = lower_new_tensor(lower, all, COD_I32);
    if (!another) {
        const int row = lower->range_counts[range] = lower_view(lower, lower->counts, 0, one, false);
        lower->program->tensors[row].row = (int64_t)range;
    }
    lower_emit(lower, (ir_instr){.kind = COD_OP_MAGNITUDES,
                                 .accumulate = another,
                                 .inputs = {x},
                                 .outputs = {lower->range_counts[range]},
                                 .name = "magnitudes"});
}

void lower_use_range(lowering *lower, size_t node, ir_instr *instr)
{
    const ir_context *context = lower->context;
    const size_t range = context->range_index[node];
    if (range == SIZE_MAX)
        return;
    if (lower->spec->observes) {
        observe(lower, range, instr->inputs[0]);
        return;
    }
    instr->attr.int8_range = context->options->int8_ranges[node];
    instr->inputs[5] = range_tensor(lower, range, 1);
}

cod_status lower_choose_ranges(lowering *lower)
{
    const size_t count = lower->context->range_count;
    for (size_t i = 0; i < count; i++)
        COD_REQUIRE(lower->range_counts[i] != 0, "program '%s' observes ranges, but not those of all convolutions",
                    lower->spec->name);
    if (count > 0)
        lower_emit(lower, (ir_instr){.kind = COD_OP_RANGES,
                                     .inputs = {lower->counts},
                                     .outputs = {range_tensor(lower, 0, count)},
                                     .name = "ranges"});
    return COD_OK;
}
