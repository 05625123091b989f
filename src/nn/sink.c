/*
 * Sinking: gradients of equal layers' weights become one plan.
 *
 * Each of them may run anywhere from where it stands to the end of its gradient bucket, unless something before that
 * overwrites what it reads or touches what it writes. The earliest of these ends is a place that some gradient needs;
 * all equal ones that have begun by then join it there, and so on with those that are left. That gives the fewest
 * plans, and no gradient sinks past the last one of its bucket. What the gradients of a plan read is kept until it has
 * run: where that is many bytes, the first of them are a plan of their own, as early as they can be.
 */
#include "nn/fuse_internal.h"

#include <stdlib.h>
#include <string.h>

/**
 * Bytes that the gradients of one plan may keep, unless the options say otherwise: the plan then has work enough for a
 * device's multiprocessors, and more layers in it would save little more than their launches.
 */
static const size_t usual_bytes = (size_t)80 << 20;

/** A gradient of weights, which may run right behind any of the instructions from `at` to `limit`. */
typedef struct candidate {
    size_t at, limit;
    bool settled;
    size_t order;  /**< in its group */
    size_t target; /**< the instruction that its group runs behind; SIZE_MAX: stays where it is */
    size_t group;
} candidate;

typedef struct sinking {
    fusing *fuse;
    candidate *candidates;
    size_t count, groups;
    size_t *picked; /**< [count] candidates that may be one plan */
    cod_op *ops;    /**< [count] */
} sinking;

/** The bucket of an output of an instruction; bucket_count where it is no gradient of a parameter. */
static size_t bucket_of(const fusing *fuse, int tensor, const cod_bucket *buckets, size_t bucket_count)
{
    const ir_tensor *t = &fuse->program->tensors[tensor];
    size_t b = 0;
    if (tensor == 0 || t->place != IR_GRADS)
        return bucket_count;
    const size_t first = t->offset / cod_dtype_bytes(fuse->context->param_dtype);
    while (b < bucket_count && (first < buckets[b].first || first - buckets[b].first >= buckets[b].count))
        b++;
    return b;
}

/** [bucket] the last instruction that writes a gradient of it. */
static void find_ends(const fusing *fuse, const cod_bucket *buckets, size_t bucket_count, size_t *ends)
{
    for (size_t i = fuse->program->backward; i < fuse->program->instr_count; i++)
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
            const size_t b = bucket_of(fuse, fuse->program->instrs[i].outputs[k], buckets, bucket_count);
            if (b < bucket_count)
                ends[b] = i;
        }
}

static size_t limit_of(const fusing *fuse, size_t at, const cod_bucket *buckets, size_t bucket_count,
                       const size_t *ends)
{
    const ir_instr *instr = &fuse->program->instrs[at];
    size_t limit = fuse->program->instr_count - 1;
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
        const size_t b = bucket_of(fuse, instr->outputs[k], buckets, bucket_count);
        if (b < bucket_count && ends[b] < limit)
            limit = ends[b];
    }
    for (size_t i = at + 1; i <= limit; i++)
        if (!fuse_may_pass(fuse, instr, &fuse->program->instrs[i]))
            return i - 1;
    return limit;
}

/** The unsettled candidate that has to run first. */
static candidate *most_urgent(const sinking *s)
{
    candidate *first = NULL;
    for (size_t i = 0; i < s->count; i++) {
        candidate *c = &s->candidates[i];
        if (!c->settled && (first == NULL || c->limit < first->limit))
            first = c;
    }
    return first;
}

/** Bytes of x and dy, which are kept until the gradient has run. */
static size_t kept_bytes(const sinking *s, const candidate *c)
{
    const cod_op op = fuse_op(s->fuse, &s->fuse->program->instrs[c->at]);
    size_t bytes = 0;
    for (size_t k = 0; k < 2; k++)
        bytes += (size_t)cod_shape_count(op.inputs[k].shape) * cod_dtype_bytes(op.inputs[k].dtype);
    return bytes;
}

/**
 * Collects `urgent` and its equals that have begun where it ends, in their order.
 *
 * @param[out] full  whether no more of them may wait together: then `urgent` may be missing
 *
 * @return how many
 */
static size_t pick_equals(sinking *s, const candidate *urgent, bool *full)
{
    cod_op pair[2] = {fuse_op(s->fuse, &s->fuse->program->instrs[urgent->at])};
    const size_t wanted = s->fuse->context->options->gradient_bytes, most = wanted > 0 ? wanted : usual_bytes;
    const size_t bytes = kept_bytes(s, urgent), fit = most > bytes ? most / bytes : 1;
    size_t count = 0;
    for (size_t i = 0; i < s->count && count < fit; i++) {
        const candidate *c = &s->candidates[i];
        if (c->settled || c->at > urgent->limit)
            continue;
        pair[1] = fuse_op(s->fuse, &s->fuse->program->instrs[c->at]);
        if (c == urgent || cod_fused_sequence(pair, 2).count == 2)
            s->picked[count++] = i;
    }
    *full = count == fit;
    return count;
}

static void settle(sinking *s)
{
    for (candidate *urgent = most_urgent(s); urgent != NULL; urgent = most_urgent(s)) {
        bool full;
        const size_t picked = pick_equals(s, urgent, &full);
        for (size_t i = 0; i < picked; i++)
            s->ops[i] = fuse_op(s->fuse, &s->fuse->program->instrs[s->candidates[s->picked[i]].at]);
        const size_t joined = fuse_ask(s->fuse, s->ops, picked);
        const size_t target = full ? s->candidates[s->picked[joined - 1]].at : urgent->limit;
        for (size_t i = 0; i < joined; i++) {
            candidate *member = &s->candidates[s->picked[i]];
            member->settled = true;
            if (joined < 2)
                break; /* it stays where it is */
            member->order = i;
            member->group = s->groups;
            member->target = target;
        }
        s->groups++;
    }
}

static int by_place(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/** Writes the instructions in their new order. */
static cod_status reorder(sinking *s)
{
    ir_program *program = s->fuse->program;
    const size_t count = program->instr_count;
    ir_instr *old = malloc(count * sizeof *old);
    bool *moves = calloc(count, sizeof *moves);
    cod_status status = COD_OK;
    if (old == NULL || moves == NULL) {
        status = cod_fail(COD_ERR_MEMORY, "out of memory while fusing");
        goto cleanup;
    }
    memcpy(old, program->instrs, count * sizeof *old);
    for (size_t i = 0; i < s->count; i++)
        moves[s->candidates[i].at] = s->candidates[i].target != SIZE_MAX;
    qsort(s->candidates, s->count, sizeof *s->candidates, by_place);
    size_t at = 0, next = 0;
    for (size_t i = 0; i < count; i++) {
        if (!moves[i])
            program->instrs[at++] = old[i];
        for (; next < s->count && s->candidates[next].target == i; next++) {
            program->instrs[at] = old[s->candidates[next].at];
            program->instrs[at++].joins = s->candidates[next].order > 0;
        }
    }
cleanup:
    free(old);
    free(moves);
    return status;
}

cod_status fuse_sink_weights(fusing *fuse, const cod_bucket *buckets, size_t bucket_count)
{
    const ir_program *program = fuse->program;
    sinking s = {.fuse = fuse,
                 .candidates = calloc(program->instr_count, sizeof *s.candidates),
                 .picked = calloc(program->instr_count, sizeof *s.picked),
                 .ops = calloc(program->instr_count, sizeof *s.ops)};
    size_t *ends = calloc(bucket_count + 1, sizeof *ends);
    cod_status status = COD_OK;
    if (s.candidates == NULL || s.picked == NULL || s.ops == NULL || ends == NULL) {
        status = cod_fail(COD_ERR_MEMORY, "out of memory while fusing");
        goto cleanup;
    }
    find_ends(fuse, buckets, bucket_count, ends);
    for (size_t i = program->backward; i < program->instr_count; i++)
        if (program->instrs[i].kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
            s.candidates[s.count++] =
                (candidate){.at = i, .limit = limit_of(fuse, i, buckets, bucket_count, ends), .target = SIZE_MAX};
    settle(&s);
    status = reorder(&s);
cleanup:
    free(s.candidates);
    free(s.picked);
    free(s.ops);
    free(ends);
    return status;
}
