/* What OPTIMISER plans wrote last, for plans_prepare_updated(). */
#include "support/late_internal.h"

#include <stdlib.h>

static void add(late_ranges *ranges, size_t begin, size_t end)
{
    if (begin >= end)
        return;
    if (ranges->count == ranges->capacity) {
        ranges->capacity = 2 * ranges->capacity + 4;
        ranges->list = realloc(ranges->list, ranges->capacity * sizeof *ranges->list);
        if (ranges->list == NULL)
            abort();
    }
    ranges->list[ranges->count][0] = begin;
    ranges->list[ranges->count++][1] = end;
}

void late_updated_note(late_buffer *buffer, size_t begin, size_t end, bool by_optimiser)
{
    late_ranges *ranges = &buffer->updated;
    for (size_t i = ranges->count; i-- > 0;) {
        const size_t first = ranges->list[i][0], last = ranges->list[i][1];
        if (end <= first || last <= begin)
            continue;
        ranges->list[i][0] = ranges->list[--ranges->count][0];
        ranges->list[i][1] = ranges->list[ranges->count][1];
        add(ranges, first, begin);
        add(ranges, end, last);
    }
    if (by_optimiser)
        add(ranges, begin, end);
}

static bool covers(const late_ranges *ranges, size_t begin, size_t end)
{
    for (size_t i = 0; i < ranges->count && begin < end; i++)
        if (ranges->list[i][0] <= begin && begin < ranges->list[i][1]) {
            begin = ranges->list[i][1];
            i = (size_t)-1; /* the next one may be any */
        }
    return begin >= end;
}

void late_updated_check(const cod_plan *plan)
{
    enum { WEIGHT = 1, BIAS = 2 };
    for (size_t i = 0; i < plan->count; i++) {
        const cod_op *op = &plan->ops[i];
        for (int k = WEIGHT; k <= BIAS && late_is_packed(op->kind); k++) {
            const cod_view *view = &op->inputs[k];
            const late_buffer *buffer = (const late_buffer *)view->buffer;
            const size_t end = view->offset + (buffer != NULL ? cod_view_span_bytes(view) : 0);
            if (buffer != NULL && !covers(&buffer->updated, view->offset, end))
                late_violation(
                    "plans_prepare_updated() of %s '%s': what wrote bytes %zu to %zu of a buffer of %zu last "
                    "was no update",
                    cod_op_kind_name(op->kind), op->name != NULL ? op->name : "", view->offset, end,
                    buffer->base.bytes);
        }
    }
}
