/*
 * The parts of a range that is averaged between devices: its shares, memory for the other ranks' values, and the
 * additions.
 */
#include "comm/direct_internal.h"

#include <limits.h>
#include <stdlib.h>

enum { SHARE_MULTIPLE = 16 };

direct_values direct_share(const direct_division *d, int rank)
{
    const size_t first = (size_t)rank * d->share < d->whole.count ? (size_t)rank * d->share : d->whole.count;
    const size_t left = d->whole.count - first;
    return (direct_values){d->whole.first + first, left < d->share ? left : d->share};
}

size_t direct_place(const direct_division *d, const direct_level *v, int rank)
{
    return (size_t)(rank < v->rank ? rank : rank - 1) * d->share;
}

static cod_view view_of(cod_buffer *buffer, size_t first_byte, size_t count)
{
    return cod_view_dense(buffer, first_byte, COD_F32, (cod_shape){1, 1, 1, (int64_t)count});
}

/** a = alpha · (a + b); without b, a = alpha · a. */
static cod_status plan_addition(const group_direct *g, cod_view a, cod_view b, float alpha, cod_plan **out)
{
    const cod_op op = {.kind = COD_OP_ADD,
                       .attr = {.alpha = alpha, .beta = alpha},
                       .inputs = {a, b},
                       .outputs = {a},
                       .name = "average"};
    return g->backend->plan_create(g->device, &op, out);
}

/**
 * Makes the plans that add the shares up. Every rank adds in the order of the ranks: values of ranks before its own are
 * summed up in rank 0's.
 */
static cod_status plan_sums(const group_direct *g, direct_average *a, const direct_level *v, direct_division *d)
{
    const direct_values own = direct_share(d, v->rank);
    if (own.count == 0 || v->size == 1)
        return COD_OK;
    d->sums = calloc((size_t)v->size - 1, sizeof(cod_plan *));
    COD_REQUIRE_MEMORY(d->sums);
    COD_TRY(g->backend->buffer_create(g->device, (size_t)(v->size - 1) * d->share * sizeof(float), &d->others));
    d->others_address = g->backend->buffer_address(g->device, d->others);
    const cod_view mine = view_of(a->buffer, a->offset + own.first * sizeof(float), own.count);
    cod_view sum = v->rank == 0 ? mine : view_of(d->others, 0, own.count);
    for (int r = 1; r < v->size; r++) {
        cod_view other = r != v->rank ? view_of(d->others, direct_place(d, v, r) * sizeof(float), own.count) : sum;
        sum = r == v->rank ? mine : sum;
        COD_TRY(plan_addition(g, sum, other, 1, &d->sums[d->sum_count]));
        d->sum_count++;
    }
    return COD_OK;
}

static cod_status plan_average(const group_direct *g, direct_average *a)
{
    direct_values whole = {0, a->count};
    int most = 0;
    for (int l = 0; l < g->level_count; l++) {
        const direct_level *v = &g->levels[l];
        direct_division *d = &a->divisions[l];
        const size_t size = (size_t)v->size, equal = (whole.count + size - 1) / size;
        *d = (direct_division){.whole = whole, .share = (equal + SHARE_MULTIPLE - 1) / SHARE_MULTIPLE * SHARE_MULTIPLE};
        COD_REQUIRE(d->share <= INT_MAX, "a range of %zu values is too large to average at once", a->count);
        COD_TRY(plan_sums(g, a, v, d));
        whole = direct_share(d, v->rank);
        most = v->size - 1 > most ? v->size - 1 : most;
    }
    a->requests = calloc(2 * (size_t)most + 1, sizeof(MPI_Request));
    COD_REQUIRE_MEMORY(a->requests);
    COD_TRY(g->backend->event_create(g->device, &a->event));
    if (whole.count == 0)
        return COD_OK;
    const cod_view mine = view_of(a->buffer, a->offset + whole.first * sizeof(float), whole.count);
    return plan_addition(g, mine, (cod_view){0}, 1.0F / (float)g->collective.size, &a->scale);
}

void direct_average_free(const group_direct *g, direct_average *a)
{
    for (int l = 0; l < DIRECT_LEVELS; l++) {
        direct_division *d = &a->divisions[l];
        for (int i = 0; i < d->sum_count; i++)
            g->backend->plan_destroy(d->sums[i]);
        free(d->sums);
        if (d->others != NULL)
            g->backend->buffer_destroy(g->device, d->others);
    }
    if (a->scale != NULL)
        g->backend->plan_destroy(a->scale);
    if (a->event != NULL)
        g->backend->event_destroy(a->event);
    free(a->requests);
    free(a);
}

cod_status direct_average_find(group_direct *g, cod_buffer *buffer, size_t offset, size_t count, direct_average **out)
{
    direct_average *a = g->all;
    while (a != NULL && (a->buffer != buffer || a->offset != offset || a->count != count))
        a = a->next;
    *out = a;
    if (a != NULL)
        return COD_OK;
    a = calloc(1, sizeof *a);
    COD_REQUIRE_MEMORY(a);
    a->direct = g;
    a->buffer = buffer;
    a->offset = offset;
    a->count = count;
    a->values = (float *)((char *)g->backend->buffer_address(g->device, buffer) + offset);
    const cod_status status = plan_average(g, a);
    if (status != COD_OK) {
        direct_average_free(g, a);
        return status;
    }
    comm_lock(g->group->comm);
    a->next = g->all;
    g->all = a;
    comm_unlock(g->group->comm);
    *out = a;
    return COD_OK;
}
