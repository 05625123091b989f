#include "data/placement_internal.h"

#include "core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Streams of COD_RNG_PLACEMENT beside those of the labels, which are their numbers. */
enum { STREAM_LIMIT = UINT32_MAX, STREAM_SHARES = UINT32_MAX - 1 };

/** Ends of the parts into which a label's `count` items are divided in a random order. */
typedef struct dealing {
    uint64_t seed;
    size_t parts;
    const double *shares; /**< [labels, parts] of each label's items; NULL = one after another, on and on */
    size_t dealt;         /**< so far, of all labels */
} dealing;

size_t cod_held_out_count(const cod_data_options *options, size_t count)
{
    if (options->val_count > 0 || options->val_fraction == 0)
        return (size_t)options->val_count;
    const size_t share = (size_t)((double)count * options->val_fraction + 0.5);
    return share > 0 ? share : 1;
}

static uint32_t label_count(const uint32_t *labels, size_t count)
{
    uint32_t labels_end = 0;
    for (size_t i = 0; i < count; i++)
        labels_end = labels[i] >= labels_end ? labels[i] + 1 : labels_end;
    return labels_end;
}

/** The part that falls to item `i` of `count` of a label. */
static uint32_t part_of(const dealing *d, uint32_t label, size_t i, size_t count)
{
    if (d->shares == NULL)
        return (uint32_t)((d->dealt + i) % d->parts);
    const double *shares = d->shares + label * d->parts;
    double end = 0;
    for (uint32_t part = 0; part + 1 < d->parts; part++) {
        end += shares[part];
        if ((double)i + 0.5 < end * (double)count)
            return part;
    }
    return (uint32_t)d->parts - 1;
}

/** Deals out items label by label. @param[out] parts  [count] */
static cod_status deal(dealing *d, const uint32_t *labels, size_t count, uint32_t *parts)
{
    uint32_t *items = malloc((2 * count + 1) * sizeof *items), *order = items + count;
    COD_REQUIRE_MEMORY(items);
    const uint32_t end = label_count(labels, count);
    for (uint32_t label = 0; label < end; label++) {
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            if (labels[i] == label)
                items[found++] = (uint32_t)i;
        cod_rng rng = cod_rng_open(d->seed, 0, 0, 0, COD_RNG_PLACEMENT, label);
        cod_rng_permutation(&rng, order, found);
        for (size_t i = 0; i < found; i++)
            parts[items[order[i]]] = part_of(d, label, i, found);
        d->dealt += found;
    }
    free(items);
    return COD_OK;
}

cod_status cod_labels_deal(const uint32_t *labels, size_t count, uint32_t *number)
{
    dealing d = {.parts = count};
    return deal(&d, labels, count, number);
}

/** Logarithm of a gamma-distributed number (Marsaglia and Tsang 2000); in logarithms, as small shapes underflow. */
static double log_gamma_draw(cod_rng *rng, double shape)
{
    /* A draw of shape a is one of a + 1 times u^(1/a). */
    const double boost = log(1 - cod_rng_uniform(rng)) / shape, d = shape + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = cod_rng_normal(rng), root = 1 + c * x, v = root * root * root;
        if (root > 0 && log(1 - cod_rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d * v) + boost;
    }
}

/** Each label's shares. @param[out] shares  [labels, groups], rows that sum to 1 */
static void draw_shares(uint64_t seed, double alpha, size_t labels, size_t groups, double *shares)
{
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_PLACEMENT, STREAM_SHARES);
    for (size_t label = 0; label < labels; label++) {
        double *row = shares + label * groups, largest = -INFINITY, sum = 0;
        for (size_t g = 0; g < groups; g++) {
            row[g] = log_gamma_draw(&rng, alpha);
            largest = fmax(largest, row[g]);
        }
        for (size_t g = 0; g < groups; g++)
            sum += row[g] = exp(row[g] - largest);
        for (size_t g = 0; g < groups; g++)
            row[g] /= sum;
    }
}

/** Divides the items between the groups. @param[out] parts  new, [count] the group of each; NULL = they share all */
static cod_status divide(const cod_data_options *options, const cod_dataset_place *place, const uint32_t *labels,
                         size_t count, uint32_t **parts)
{
    const size_t groups = (size_t)place->groups, labels_end = label_count(labels, count);
    const bool skewed = options->placement == COD_PLACEMENT_DIRICHLET;
    *parts = NULL;
    if (options->placement == COD_PLACEMENT_SHARED || (place->all && options->items_per_group == 0))
        return COD_OK;
    COD_REQUIRE(count >= groups,
                "data.placement: %zu training items are too few to give each of %zu groups some of its own", count,
                groups);
    *parts = malloc((count + 1) * sizeof **parts);
    double *shares = skewed ? malloc((labels_end * groups + 1) * sizeof *shares) : NULL;
    cod_status status = COD_OK;
    if (*parts == NULL || (skewed && shares == NULL))
        status = cod_fail(COD_ERR_MEMORY, "out of memory for %zu training items", count);
    if (status == COD_OK && skewed)
        draw_shares(place->seed, options->alpha, labels_end, groups, shares);
    COD_THEN(status, deal(&(dealing){.seed = place->seed, .parts = groups, .shares = shares}, labels, count, *parts));
    free(shares);
    return status;
}

/** Adds what one group keeps of its part: all, or items_per_group chosen at random. */
static cod_status add_kept(const cod_data_options *options, const cod_dataset_place *place, int group,
                           const uint32_t *parts, size_t count, bool *ours)
{
    size_t held = 0, kept = (size_t)options->items_per_group;
    for (size_t i = 0; i < count; i++)
        held += parts == NULL || parts[i] == (uint32_t)group;
    if (kept == 0 || (kept > held && options->placement == COD_PLACEMENT_DIRICHLET))
        kept = held;
    COD_REQUIRE(kept <= held, "data.items_per_group: %zu are wanted, but group %d has %zu of the %zu training items",
                kept, group, held, count);
    uint32_t *order = malloc((count + 1) * sizeof *order);
    COD_REQUIRE_MEMORY(order);
    /* Groups that share all share what they keep. */
    cod_rng rng = cod_rng_open(place->seed, parts == NULL ? 0 : (uint32_t)group, 0, 0, COD_RNG_PLACEMENT, STREAM_LIMIT);
    cod_rng_permutation(&rng, order, count);
    for (size_t i = 0; i < count && kept > 0; i++)
        if (parts == NULL || parts[order[i]] == (uint32_t)group) {
            ours[order[i]] = true;
            kept--;
        }
    free(order);
    return COD_OK;
}

/** The items that the group at `place` keeps. */
static cod_status keep(const cod_data_options *options, const cod_dataset_place *place, const uint32_t *parts,
                       size_t count, bool *ours)
{
    const int first = place->all ? 0 : place->group, end = place->all ? place->groups : place->group + 1;
    memset(ours, 0, count * sizeof *ours);
    for (int group = first; group < end; group++)
        COD_TRY(add_kept(options, place, group, parts, count, ours));
    return COD_OK;
}

cod_status cod_placement_keep(const cod_data_options *options, const cod_dataset_place *place, const uint32_t *labels,
                              size_t count, bool *ours)
{
    uint32_t *parts;
    cod_status status = divide(options, place, labels, count, &parts);
    COD_THEN(status, keep(options, place, parts, count, ours));
    free(parts);
    COD_TRY(status);
    bool any = count == 0;
    for (size_t i = 0; i < count; i++)
        any = any || ours[i];
    COD_REQUIRE(any,
                "data.alpha: at %g and this seed group %d gets none of the %zu training examples; raise data.alpha, "
                "or change seed",
                options->alpha, place->group, count);
    return COD_OK;
}

cod_status cod_placement_count(const cod_data_options *options, const cod_dataset_place *place, const uint32_t *labels,
                               size_t count, size_t classes, size_t *counts)
{
    uint32_t *parts;
    bool *kept = malloc((count + 1) * sizeof *kept);
    COD_REQUIRE_MEMORY(kept);
    cod_dataset_place each = *place;
    cod_status status = divide(options, place, labels, count, &parts);
    memset(counts, 0, (size_t)place->groups * classes * sizeof *counts);
    for (each.group = 0; status == COD_OK && each.group < place->groups; each.group++) {
        status = keep(options, &each, parts, count, kept);
        for (size_t i = 0; i < count; i++)
            counts[(size_t)each.group * classes + labels[i]] += status == COD_OK && kept[i];
    }
    free(parts);
    free(kept);
    return status;
}
