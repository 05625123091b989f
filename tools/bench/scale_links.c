#include "tools/bench/scale_links.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct flow {
    bool active;
    int from, to;
    double left, rate, most, since, ends; /**< bytes that were left at `since` */
    size_t heap_at;
} flow;

/** Flows that share one way of a link. */
typedef struct way {
    size_t *flows, count;
} way;

/** Windows that are counted at a time: flows are counted when they change, which may be late. */
enum { WINDOWS = 64 };
/** Bytes that came to a node in the number-th window. */
typedef struct window {
    double bytes;
    int64_t number;
} window;

struct cod_scale_links {
    int nodes;
    double bytes_per_s, window_s, bytes, peak;
    flow *flows;
    size_t *heap, heap_count; /**< flows under way, the one that ends first at the top */
    way *out, *in;            /**< [nodes] */
    window *windows;          /**< [nodes][WINDOWS] the number-th at number modulo WINDOWS */
};

cod_status cod_scale_links_create(int nodes, size_t flows, double bytes_per_s, double window_s, cod_scale_links **out)
{
    const size_t count = (size_t)nodes;
    cod_scale_links *links = calloc(1, sizeof *links);
    COD_REQUIRE_MEMORY(links);
    *out = links;
    links->nodes = nodes;
    links->bytes_per_s = bytes_per_s;
    links->window_s = window_s;
    links->flows = calloc(flows + 1, sizeof *links->flows);
    links->heap = calloc(flows + 1, sizeof *links->heap);
    links->out = calloc(count, sizeof *links->out);
    links->in = calloc(count, sizeof *links->in);
    links->windows = calloc(count * WINDOWS, sizeof *links->windows);
    COD_REQUIRE_MEMORY(links->flows);
    COD_REQUIRE_MEMORY(links->heap);
    COD_REQUIRE_MEMORY(links->out);
    COD_REQUIRE_MEMORY(links->in);
    COD_REQUIRE_MEMORY(links->windows);
    for (size_t n = 0; n < 2 * count; n++) {
        way *w = n < count ? &links->out[n] : &links->in[n - count];
        w->flows = calloc(flows + 1, sizeof *w->flows);
        COD_REQUIRE_MEMORY(w->flows);
    }
    return COD_OK;
}

void cod_scale_links_destroy(cod_scale_links *links)
{
    if (links == NULL)
        return;
    for (int n = 0; n < links->nodes; n++) {
        if (links->out != NULL)
            free(links->out[n].flows);
        if (links->in != NULL)
            free(links->in[n].flows);
    }
    free(links->flows);
    free(links->heap);
    free(links->out);
    free(links->in);
    free(links->windows);
    free(links);
}

/** Counts bytes that came evenly from `since` to `until`. */
static void note(cod_scale_links *links, int to, double bytes, double since, double until)
{
    const double length = links->window_s;
    links->bytes += bytes;
    for (int64_t n = (int64_t)(since / length); n <= (int64_t)(until / length); n++) {
        window *w = &links->windows[to * WINDOWS + n % WINDOWS];
        const double begin = fmax(since, (double)n * length), end = fmin(until, (double)(n + 1) * length);
        if (w->number > n)
            continue;
        if (w->number < n)
            *w = (window){.number = n};
        w->bytes += until > since ? bytes * (end - begin) / (until - since) : bytes;
        links->peak = fmax(links->peak, w->bytes / length);
    }
}

void cod_scale_links_note(cod_scale_links *links, int to, double bytes, double now_s)
{
    note(links, to, bytes, now_s, now_s);
}

/* The heap. */

static bool ends_before(const cod_scale_links *links, size_t a, size_t b)
{
    const flow *x = &links->flows[links->heap[a]], *y = &links->flows[links->heap[b]];
    return x->ends < y->ends || (x->ends == y->ends && x < y);
}

static void swap(cod_scale_links *links, size_t a, size_t b)
{
    const size_t kept = links->heap[a];
    links->heap[a] = links->heap[b];
    links->heap[b] = kept;
    links->flows[links->heap[a]].heap_at = a;
    links->flows[links->heap[b]].heap_at = b;
}

/** Puts the flow at `at` where it belongs, after its end has changed. */
static void settle(cod_scale_links *links, size_t at)
{
    for (; at > 0 && ends_before(links, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(links, at, (at - 1) / 2);
    for (;;) {
        size_t first = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < links->heap_count; child++)
            first = ends_before(links, child, first) ? child : first;
        if (first == at)
            return;
        swap(links, at, first);
        at = first;
    }
}

/* Flows. */

/** Counts what has come of it, and gives it the rate that its links now have for it. */
static void change(cod_scale_links *links, flow *f, double now)
{
    const double moved = fmin(f->left, f->rate * (now - f->since));
    note(links, f->to, moved, f->since, now);
    f->left -= moved;
    f->since = now;
    const double most = fmin(f->most, links->bytes_per_s / (double)links->out[f->from].count);
    f->rate = fmin(most, links->bytes_per_s / (double)links->in[f->to].count);
    f->ends = now + f->left / f->rate;
    settle(links, f->heap_at);
}

/** Flows that share a link with those between these nodes have other rates now. */
static void change_all(cod_scale_links *links, int from, int to, double now)
{
    for (size_t i = 0; i < links->out[from].count; i++)
        change(links, &links->flows[links->out[from].flows[i]], now);
    for (size_t i = 0; i < links->in[to].count; i++)
        change(links, &links->flows[links->in[to].flows[i]], now);
}

static void leave(way *w, size_t number)
{
    size_t at = 0;
    while (w->flows[at] != number)
        at++;
    w->flows[at] = w->flows[--w->count];
}

void cod_scale_links_start(cod_scale_links *links, size_t number, int from, int to, double bytes, double most_per_s,
                           double now_s)
{
    flow *f = &links->flows[number];
    *f = (flow){.active = true,
                .from = from,
                .to = to,
                .left = bytes,
                .most = most_per_s,
                .since = now_s,
                .ends = INFINITY,
                .heap_at = links->heap_count};
    links->heap[links->heap_count++] = number;
    links->out[from].flows[links->out[from].count++] = number;
    links->in[to].flows[links->in[to].count++] = number;
    change_all(links, from, to, now_s);
}

void cod_scale_links_stop(cod_scale_links *links, size_t number, double now_s)
{
    flow *f = &links->flows[number];
    if (!f->active)
        return;
    note(links, f->to, fmin(f->left, f->rate * (now_s - f->since)), f->since, now_s);
    f->active = false;
    const size_t hole = f->heap_at;
    swap(links, hole, links->heap_count - 1);
    links->heap_count--;
    if (hole < links->heap_count)
        settle(links, hole);
    leave(&links->out[f->from], number);
    leave(&links->in[f->to], number);
    change_all(links, f->from, f->to, now_s);
}

double cod_scale_links_next(const cod_scale_links *links, size_t *number)
{
    if (links->heap_count == 0)
        return INFINITY;
    *number = links->heap[0];
    return links->flows[links->heap[0]].ends;
}

void cod_scale_links_end_next(cod_scale_links *links)
{
    const size_t number = links->heap[0];
    cod_scale_links_stop(links, number, links->flows[number].ends);
}

double cod_scale_links_bytes(const cod_scale_links *links)
{
    return links->bytes;
}

double cod_scale_links_peak(const cod_scale_links *links)
{
    return links->peak;
}
