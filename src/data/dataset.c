#include "data/dataset.h"

#include "core/hash.h"
#include "core/log.h"
#include "data/faults.h"
#include "data/placement_internal.h"
#include "data/store_internal.h"

#include <stdlib.h>

/** Pictures of a split as indices into the sources, in the order they were found. */
typedef struct index_list {
    size_t count;
    uint32_t *items;
} index_list;

struct cod_dataset {
    cod_source_list sources;
    cod_store store;
    cod_dataset_counts counts;
    index_list samples[2]; /**< by cod_split */
};

/** Data for opening, in addition to the data set. */
typedef struct opening {
    cod_dataset *dataset;
    const cod_data_options *options;
    const cod_dataset_place *place;
    cod_faults faults; /**< of the pictures that are left out */
    bool *usable;      /**< of each source */
    index_list train;  /**< pictures of all groups */
} opening;

static cod_status index_list_init(index_list *list, size_t capacity)
{
    *list = (index_list){.items = malloc((capacity + 1) * sizeof *list->items)};
    COD_REQUIRE_MEMORY(list->items);
    return COD_OK;
}

static void append(index_list *list, size_t index)
{
    list->items[list->count++] = (uint32_t)index;
}

static bool is_usable(const opening *o, const cod_stored *picture)
{
    return !picture->broken && picture->low_width >= o->options->patch && picture->low_height >= o->options->patch;
}

/** Whether pictures of the training folders are held out, rather than those below val_path. */
static bool holds_out(const cod_data_options *options)
{
    return options->kind != COD_DATA_PICTURES || options->val_path.count == 0;
}

/**
 * Leaves out copies for data.scales of held-out pictures, which are never used. If a picture turns out to be broken
 * only when it is decoded, other pictures are held out than expected here; copies that are then needed are decoded at
 * each use.
 */
static void leave_out_copies(const void *context, const cod_stored *pictures, bool *left_out)
{
    const opening *o = context;
    const cod_source_list *sources = &o->dataset->sources;
    const cod_float_list *scales = &o->options->scales;
    size_t usable = 0, at = 0;
    for (size_t i = 0; i < sources->found; i++)
        usable += is_usable(o, &pictures[i]);
    const size_t held_out = cod_held_out_count(o->options, usable);
    for (size_t i = 0; i < sources->found && holds_out(o->options) && held_out < usable; i++) {
        if (!is_usable(o, &pictures[i]) || !cod_is_held_out(at++, held_out, usable))
            continue;
        for (size_t s = 0; s < scales->count; s++)
            if (scales->items[s] != 1)
                left_out[cod_source_at_scale(sources, scales, i, s)] = true;
    }
}

static cod_status open_store(const opening *o)
{
    const double share = o->options->val_fraction;
    const int64_t numbers[3] = {o->options->patch, o->options->val_count, holds_out(o->options)};
    const cod_store_choice choice = {.leave_out = leave_out_copies,
                                     .context = o,
                                     .key = cod_hash(&share, sizeof share, cod_hash(numbers, sizeof numbers, 0))};
    return cod_store_open(&o->dataset->store, &o->dataset->sources, (size_t)o->options->cache_mb << 20, &choice,
                          o->place->report);
}

/** Keeps what is wrong with a picture that is not usable. */
static void add_fault(const opening *o, size_t index, cod_faults *faults)
{
    const cod_store *store = &o->dataset->store;
    const long long side = o->options->patch * o->place->scale;
    if (store->pictures[index].broken)
        cod_faults_add(faults, "%s", (const char *)store->base + store->pictures[index].offset);
    else
        cod_faults_add(faults, "%s: is smaller than one crop of %lldx%lld pixels",
                       o->dataset->sources.items[index].path, side, side);
}

/** Sorts out what is broken or smaller than one crop. */
static void judge(opening *o)
{
    cod_dataset *dataset = o->dataset;
    dataset->counts.files = dataset->sources.found;
    for (size_t i = 0; i < dataset->sources.found; i++) {
        const cod_stored *picture = &dataset->store.pictures[i];
        o->usable[i] = is_usable(o, picture);
        dataset->counts.broken += picture->broken != 0;
        dataset->counts.small += !o->usable[i] && !picture->broken;
        dataset->counts.uncached += o->usable[i] && picture->offset == 0;
        if (!o->usable[i])
            add_fault(o, i, &o->faults);
    }
    dataset->counts.cached_bytes = dataset->store.pixel_bytes;
}

/** Sorts out copies by data.scales of training pictures that are smaller than one crop. */
static cod_status judge_copies(opening *o)
{
    cod_dataset *dataset = o->dataset;
    const cod_source_list *sources = &dataset->sources;
    const cod_float_list *scales = &o->options->scales;
    const int64_t side = o->options->patch * o->place->scale;
    for (size_t s = 0; s < scales->count; s++) {
        const size_t wanted = scales->items[s] != 1 ? o->train.count : 0;
        size_t fit = 0;
        for (size_t i = 0; i < wanted; i++) {
            const size_t at = cod_source_at_scale(sources, scales, o->train.items[i], s);
            const cod_stored *copy = &dataset->store.pictures[at];
            o->usable[at] = is_usable(o, copy);
            dataset->counts.uncached += o->usable[at] && copy->offset == 0;
            fit += o->usable[at];
        }
        COD_REQUIRE(
            wanted == 0 || fit > 0,
            "data.scales: none of %zu pictures, brought down to %g of their size, holds a crop of %lldx%lld pixels",
            wanted, scales->items[s], (long long)side, (long long)side);
        if (fit < wanted && o->place->report)
            cod_log_warn("data.scales: %zu of %zu pictures are left out at %g of their size: smaller than one crop of "
                         "%lldx%lld pixels",
                         wanted - fit, wanted, scales->items[s], (long long)side, (long long)side);
    }
    return COD_OK;
}

static const char *root_name(const cod_data_options *options, size_t root)
{
    const size_t roots = options->path.count;
    return root < roots ? options->path.items[root] : options->val_path.items[root - roots];
}

/** The first of the pictures from `begin` to before `end`, none of which is usable. */
static void tell_faults(const opening *o, size_t begin, size_t end, char text[COD_FAULTS_TEXT])
{
    cod_faults faults = {0};
    for (size_t i = begin; i < end; i++)
        add_fault(o, i, &faults);
    cod_faults_first(&faults, "; ", text);
    cod_faults_clear(&faults);
}

/** A folder that gives nothing is a mistake in the config, even beside others that give something. */
static cod_status check_roots(const opening *o)
{
    const cod_source_list *sources = &o->dataset->sources;
    if (sources->synthetic_side != 0)
        return COD_OK;
    const size_t roots = o->options->path.count + o->options->val_path.count;
    for (size_t root = 0, i = 0; root < roots; root++) {
        size_t found = 0, usable = 0, broken = 0;
        const size_t first = i;
        for (; i < sources->found && sources->items[i].root == root; i++) {
            found++;
            usable += o->usable[i];
            broken += o->dataset->store.pictures[i].broken != 0;
        }
        char faults[COD_FAULTS_TEXT] = "";
        if (usable == 0)
            tell_faults(o, first, i, faults);
        const char *key = root < o->options->path.count ? "data.path" : "data.val_path";
        key = o->place->option != NULL ? o->place->option : key;
        COD_REQUIRE(found > 0, "%s: no pictures in '%s'; PNG, JPEG, WebP, TIFF and BMP files are read, subfolders too",
                    key, root_name(o->options, root));
        COD_REQUIRE(usable > 0,
                    "%s: none of the %zu pictures in '%s' can be used: %zu broken, %zu smaller than one crop of "
                    "%lldx%lld; the first: %s",
                    key, found, root_name(o->options, root), broken, found - broken,
                    (long long)(o->options->patch * o->place->scale), (long long)(o->options->patch * o->place->scale),
                    faults);
    }
    return COD_OK;
}

/** Divides the usable pictures: those of val_path, or else evenly spread ones, are for validation. */
static cod_status hold_out(opening *o)
{
    const cod_source_list *sources = &o->dataset->sources;
    const cod_data_options *options = o->options;
    index_list *val = &o->dataset->samples[COD_SPLIT_VAL], all;
    COD_TRY(index_list_init(val, sources->found));
    COD_TRY(index_list_init(&o->train, sources->found));
    if (!holds_out(options)) {
        for (size_t i = 0; i < sources->found; i++)
            if (o->usable[i])
                append(sources->items[i].root < options->path.count ? &o->train : val, i);
        return COD_OK;
    }
    COD_TRY(index_list_init(&all, sources->found));
    for (size_t i = 0; i < sources->found; i++)
        if (o->usable[i])
            append(&all, i);
    const size_t held_out = cod_held_out_count(options, all.count);
    for (size_t i = 0; i < all.count && held_out < all.count; i++)
        append(cod_is_held_out(i, held_out, all.count) ? val : &o->train, all.items[i]);
    free(all.items);
    COD_REQUIRE(
        held_out < all.count,
        "data: holding out %zu of %zu usable pictures of '%s' leaves none to train on; set val_path or val_fraction: 0",
        held_out, all.count, options->kind == COD_DATA_PICTURES ? root_name(options, 0) : "synthetic");
    return COD_OK;
}

/** Keeps this group's part of the training pictures; each folder is divided for itself. */
static cod_status place(opening *o)
{
    const cod_source *sources = o->dataset->sources.items;
    const size_t count = o->train.count;
    uint32_t *roots = malloc((count + 1) * sizeof *roots);
    bool *ours = calloc(count + 1, sizeof *ours);
    cod_status status = COD_OK;
    if (roots == NULL || ours == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for %zu pictures", count);
    for (size_t i = 0; status == COD_OK && i < count; i++)
        roots[i] = (uint32_t)sources[o->train.items[i]].root;
    COD_THEN(status, cod_placement_keep(o->options, o->place, roots, count, ours));
    size_t kept = 0;
    for (size_t i = 0; status == COD_OK && i < count; i++)
        if (ours[i])
            o->train.items[kept++] = o->train.items[i];
    o->train.count = kept;
    free(roots);
    free(ours);
    return status;
}

/** Adds training picture `index` at each of data.scales. */
static void append_scales(const opening *o, index_list *samples, size_t index)
{
    const cod_float_list *scales = &o->options->scales;
    if (scales->count == 0)
        append(samples, index);
    for (size_t s = 0; s < scales->count; s++) {
        const size_t at = cod_source_at_scale(&o->dataset->sources, scales, index, s);
        if (o->usable[at])
            append(samples, at);
    }
}

/** Repeats each training picture at all its sizes as often as its folder's weight says. */
static cod_status weigh(opening *o)
{
    const cod_source *sources = o->dataset->sources.items;
    const cod_int_list *weights = &o->options->weights;
    const bool weighted = weights->count > 0 && o->options->kind == COD_DATA_PICTURES;
    size_t total = 0;
    for (size_t i = 0; i < o->train.count; i++)
        total += weighted ? (size_t)weights->items[sources[o->train.items[i]].root] : 1;
    total *= o->options->scales.count > 1 ? o->options->scales.count : 1;
    COD_REQUIRE(total <= UINT32_MAX, "data.weights: an epoch of %zu samples is too long", total);
    index_list *samples = &o->dataset->samples[COD_SPLIT_TRAIN];
    COD_TRY(index_list_init(samples, total));
    for (size_t i = 0; i < o->train.count; i++) {
        const size_t index = o->train.items[i];
        const int64_t weight = weighted ? weights->items[sources[index].root] : 1;
        for (int64_t n = 0; n < weight; n++)
            append_scales(o, samples, index);
    }
    COD_REQUIRE(samples->count > 0 || o->train.count == 0,
                "data.scales: no picture of group %d holds a crop at any of these sizes", o->place->group);
    o->dataset->counts.train = o->train.count;
    o->dataset->counts.val = o->dataset->samples[COD_SPLIT_VAL].count;
    return COD_OK;
}

static cod_status open_dataset(opening *o)
{
    cod_dataset *dataset = o->dataset;
    COD_TRY(cod_sources_find(o->options, o->place->scale, o->place->report, &dataset->sources));
    COD_TRY(open_store(o));
    o->usable = calloc(dataset->sources.count + 1, sizeof *o->usable);
    COD_REQUIRE_MEMORY(o->usable);
    judge(o);
    COD_TRY(check_roots(o));
    if (o->place->report)
        cod_faults_report(&o->faults, dataset->sources.found, "pictures", o->place->left_out);
    COD_TRY(hold_out(o));
    COD_TRY(judge_copies(o));
    COD_TRY(place(o));
    return weigh(o);
}

cod_status cod_dataset_open(const cod_data_options *options, const cod_dataset_place *place, cod_dataset **out)
{
    *out = NULL;
    COD_TRY(cod_data_options_check(options));
    COD_REQUIRE(place->scale >= 1 && place->groups >= 1 && place->group >= 0 && place->group < place->groups,
                "no data set of scale %d for group %d of %d", place->scale, place->group, place->groups);
    cod_dataset *dataset = calloc(1, sizeof *dataset);
    COD_REQUIRE_MEMORY(dataset);
    opening o = {.dataset = dataset, .options = options, .place = place};
    const cod_status status = open_dataset(&o);
    cod_faults_clear(&o.faults);
    free(o.usable);
    free(o.train.items);
    if (status != COD_OK) {
        cod_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return COD_OK;
}

void cod_dataset_close(cod_dataset *dataset)
{
    if (dataset == NULL)
        return;
    cod_store_close(&dataset->store);
    cod_sources_clear(&dataset->sources);
    free(dataset->samples[COD_SPLIT_TRAIN].items);
    free(dataset->samples[COD_SPLIT_VAL].items);
    free(dataset);
}

cod_dataset_counts cod_dataset_count(const cod_dataset *dataset)
{
    return dataset->counts;
}

int cod_dataset_scale(const cod_dataset *dataset)
{
    return dataset->sources.scale;
}

size_t cod_dataset_size(const cod_dataset *dataset, cod_split split)
{
    return dataset->samples[split].count;
}

uint64_t cod_dataset_held_out_key(const cod_dataset *dataset)
{
    const index_list *val = &dataset->samples[COD_SPLIT_VAL];
    return cod_hash(val->items, val->count * sizeof *val->items, val->count);
}

const char *cod_dataset_name(const cod_dataset *dataset, cod_split split, size_t index)
{
    return dataset->sources.items[dataset->samples[split].items[index]].path;
}

cod_status cod_dataset_read(const cod_dataset *dataset, cod_split split, size_t index, cod_pair *pair)
{
    *pair = (cod_pair){0};
    COD_REQUIRE(index < dataset->samples[split].count, "no sample %zu of %zu", index, dataset->samples[split].count);
    const size_t source = dataset->samples[split].items[index];
    const cod_stored *picture = &dataset->store.pictures[source];
    const int64_t width = picture->low_width, height = picture->low_height;
    const size_t low_bytes = (size_t)(width * height * 3);
    const uint8_t *pixels = dataset->store.base + picture->offset;
    uint8_t *owned = NULL;
    if (picture->offset == 0) {
        owned = malloc(cod_pair_bytes(width, height, dataset->sources.scale));
        COD_REQUIRE_MEMORY(owned);
        const cod_status status = cod_source_load(&dataset->sources, source, width, height, owned, owned + low_bytes);
        if (status != COD_OK) {
            free(owned);
            return status;
        }
        pixels = owned;
    }
    *pair =
        (cod_pair){.low_width = width, .low_height = height, .low = pixels, .high = pixels + low_bytes, .owned = owned};
    return COD_OK;
}

void cod_pair_clear(cod_pair *pair)
{
    free(pair->owned);
    *pair = (cod_pair){0};
}
