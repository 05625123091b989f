#include "data/labelled.h"

#include "core/backend.h"
#include "core/hash.h"
#include "core/shown.h"
#include "data/examples_internal.h"
#include "data/placement_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DECODED_FOR_MEAN = 1000 };

/** Examples of a split, by their numbers. */
typedef struct index_list {
    size_t count;
    uint32_t *items;
} index_list;

struct cod_labelled {
    cod_examples examples;
    cod_labelled_counts counts;
    index_list splits[COD_SPLITS];
    index_list train;      /**< of all groups */
    int64_t height, width; /**< of what is given; not above the examples' own */
    int64_t reach;         /**< pixels that training moves a crop from the middle at most */
    bool mirror;           /**< training turns left and right round */
    float mean[COD_LABELLED_MAX_CHANNELS], deviation[COD_LABELLED_MAX_CHANNELS];
    float scale[COD_LABELLED_MAX_CHANNELS], shift[COD_LABELLED_MAX_CHANNELS]; /**< held value -> normalised */
    float *table; /**< [256, C] the same of each byte; NULL = examples are not of bytes */
};

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

static uint32_t *labels_of(const cod_labelled *l, const index_list *list)
{
    uint32_t *labels = malloc((list->count + 1) * sizeof *labels);
    for (size_t i = 0; labels != NULL && i < list->count; i++)
        labels[i] = l->examples.labels[list->items[i]];
    return labels;
}

/** Divides `all` into training and validation. */
static cod_status hold_out(const cod_data_options *options, cod_labelled *l, const index_list *all)
{
    const size_t count = all->count, folds = (size_t)options->folds;
    const size_t held_out = options->val_path.count > 0 ? 0 : cod_held_out_count(options, count);
    COD_REQUIRE(folds <= count, "data.folds: %zu are more than the %zu examples", folds, count);
    COD_REQUIRE(held_out < count || folds > 0, "data: holding out %zu of %zu examples leaves none to train on",
                held_out, count);
    uint32_t *labels = labels_of(l, all), *numbers = malloc((count + 1) * sizeof *numbers);
    cod_status status = COD_OK;
    if (labels == NULL || numbers == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for %zu examples", count);
    COD_THEN(status, cod_labels_deal(labels, count, numbers));
    for (size_t i = 0; status == COD_OK && i < count; i++) {
        const bool held =
            folds > 0 ? numbers[i] % folds == (size_t)options->fold : cod_is_held_out(numbers[i], held_out, count);
        append(held ? &l->splits[COD_SPLIT_VAL] : &l->train, all->items[i]);
    }
    free(labels);
    free(numbers);
    return status;
}

/** Divides what is there into splits; the training examples are of all groups yet. */
static cod_status divide(const cod_data_options *options, cod_labelled *l)
{
    const cod_examples *examples = &l->examples;
    index_list all;
    COD_TRY(index_list_init(&all, examples->count));
    for (size_t i = 0; i < examples->count; i++) {
        if (examples->broken != NULL && examples->broken[i])
            l->counts.broken++;
        else if (i >= examples->test_begin)
            append(&l->splits[COD_SPLIT_TEST], i);
        else
            append(i >= examples->val_begin ? &l->splits[COD_SPLIT_VAL] : &all, i);
    }
    const cod_status status = hold_out(options, l, &all);
    free(all.items);
    return status;
}

/** Keeps this group's part of the training examples. */
static cod_status place_train(const cod_data_options *options, const cod_dataset_place *place, cod_labelled *l)
{
    const index_list *train = &l->train;
    uint32_t *labels = labels_of(l, train);
    bool *ours = calloc(train->count + 1, sizeof *ours);
    cod_status status = COD_OK;
    if (labels == NULL || ours == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for %zu examples", train->count);
    COD_THEN(status, cod_placement_keep(options, place, labels, train->count, ours));
    for (size_t i = 0; status == COD_OK && i < train->count; i++)
        if (ours[i])
            append(&l->splits[COD_SPLIT_TRAIN], train->items[i]);
    free(labels);
    free(ours);
    return status;
}

/** The 8-bit pixels of an example. @param[out] decoded  to be freed, NULL where they are held */
static cod_status pixels_of(const cod_examples *examples, size_t index, const uint8_t **pixels, uint8_t **decoded)
{
    *decoded = NULL;
    if (index < examples->held) {
        *pixels = examples->bytes + index * cod_example_values(examples);
        return COD_OK;
    }
    *decoded = malloc(cod_example_values(examples));
    COD_REQUIRE_MEMORY(*decoded);
    const cod_status status = cod_photograph_read(examples, index, *decoded);
    if (status != COD_OK) {
        free(*decoded);
        *decoded = NULL;
    }
    *pixels = *decoded;
    return status;
}

static void set_normalisation(cod_labelled *l)
{
    const float unit = l->examples.floats != NULL ? 1 : 255;
    for (int64_t c = 0; c < l->examples.channels; c++) {
        l->scale[c] = 1 / (unit * l->deviation[c]);
        l->shift[c] = -l->mean[c] / l->deviation[c];
    }
    for (int64_t i = 0; l->table != NULL && i < 256 * l->examples.channels; i++) {
        const int64_t c = i % l->examples.channels;
        l->table[i] = (float)(i / l->examples.channels) * l->scale[c] + l->shift[c];
    }
}

/** Adds an example's values and their squares, channel by channel. */
static cod_status add_moments(const cod_labelled *l, size_t index, double *sums, double *squares)
{
    const cod_examples *examples = &l->examples;
    const int64_t channels = examples->channels;
    const size_t values = cod_example_values(examples);
    const float *floats = examples->floats != NULL ? examples->floats + index * values : NULL;
    const uint8_t *pixels = NULL;
    uint8_t *decoded = NULL;
    if (floats == NULL)
        COD_TRY(pixels_of(examples, index, &pixels, &decoded));
    for (size_t i = 0; i < values; i += (size_t)channels)
        for (int64_t c = 0; c < channels; c++) {
            const double value = floats != NULL ? floats[i + (size_t)c] : pixels[i + (size_t)c] / 255.0;
            sums[c] += value;
            squares[c] += value * value;
        }
    free(decoded);
    return COD_OK;
}

/** Mean and deviation of the training examples, or of some where they would have to be decoded. */
static cod_status measure(cod_labelled *l)
{
    const index_list *train = &l->train;
    const cod_examples *examples = &l->examples;
    const bool held = examples->floats != NULL || examples->held == examples->count;
    const size_t step = held || train->count < DECODED_FOR_MEAN ? 1 : train->count / DECODED_FOR_MEAN;
    const size_t channels = (size_t)examples->channels;
    double *sums = calloc(2 * channels, sizeof *sums), *squares = sums + channels, count = 0;
    COD_REQUIRE_MEMORY(sums);
    cod_status status = COD_OK;
    for (size_t i = 0; status != COD_ERR_MEMORY && i < train->count; i += step) {
        status = add_moments(l, train->items[i], sums, squares);
        if (status == COD_OK) /* else a photograph that the loader will replace */
            count += (double)(examples->height * examples->width);
    }
    status = count > 0 && status != COD_ERR_MEMORY ? COD_OK : status;
    for (size_t c = 0; status == COD_OK && c < channels; c++) {
        const double mean = sums[c] / count, variance = squares[c] / count - mean * mean;
        l->mean[c] = (float)mean;
        l->deviation[c] = variance > 1e-12 * (1 + mean * mean) ? (float)sqrt(variance) : 1; /* of a constant */
    }
    free(sums);
    if (status == COD_OK)
        set_normalisation(l);
    return status;
}

static void set_view(const cod_data_options *options, cod_labelled *l)
{
    const cod_examples *examples = &l->examples;
    const bool photographs = options->kind == COD_DATA_FOLDER;
    l->height = photographs ? options->size : examples->height;
    l->width = photographs ? options->size : examples->width;
    if (options->augment && photographs)
        l->reach = (examples->height - l->height) / 2;
    else if (options->augment && options->kind == COD_DATA_MNIST)
        l->reach = options->shift;
    l->mirror = options->augment && photographs;
}

/** Names of classes go into model files, reports and messages as text. */
static cod_status check_class_names(const cod_data_options *options, const cod_examples *examples)
{
    for (size_t k = 0; k < examples->class_count; k++) {
        const char *name = examples->class_names[k], *rest = name;
        for (size_t length; *rest != '\0' && (length = cod_utf8_length(rest, strlen(rest))) > 0;)
            rest += length;
        if (*rest != '\0')
            return cod_fail(COD_ERR_FORMAT, "data.path: '%s': the class '%s' is not UTF-8 text: rename it",
                            options->path.items[0], cod_shown(name).text);
    }
    return COD_OK;
}

static cod_status open_labelled(const cod_data_options *options, const cod_dataset_place *place, cod_labelled *l)
{
    static cod_status (*const readers[])(const cod_data_options *, bool,
                                         cod_examples *) = {[COD_DATA_MNIST] = cod_mnist_read,
                                                            [COD_DATA_IRIS] = cod_iris_read,
                                                            [COD_DATA_FOLDER] = cod_class_folders_read,
                                                            [COD_DATA_SYNTHETIC] = cod_synthetic_examples_make};
    l->examples.left_out = place->left_out;
    COD_TRY(readers[options->kind](options, place->report, &l->examples));
    COD_TRY(check_class_names(options, &l->examples));
    COD_REQUIRE(l->examples.channels <= COD_LABELLED_MAX_CHANNELS, "examples of %lld channels; at most %d are taken",
                (long long)l->examples.channels, COD_LABELLED_MAX_CHANNELS);
    set_view(options, l);
    if (l->examples.floats == NULL) {
        l->table = malloc(256 * (size_t)l->examples.channels * sizeof *l->table);
        COD_REQUIRE_MEMORY(l->table);
    }
    l->counts.found = l->examples.count;
    for (int s = 0; s < COD_SPLITS; s++)
        COD_TRY(index_list_init(&l->splits[s], l->examples.count));
    COD_TRY(index_list_init(&l->train, l->examples.count));
    COD_TRY(divide(options, l));
    COD_TRY(place_train(options, place, l));
    COD_TRY(measure(l));
    for (int s = 0; s < COD_SPLITS; s++)
        l->counts.split[s] = l->splits[s].count;
    return COD_OK;
}

/** log of p_g/p for each class of one group. @param total  [classes + 1] of all groups: of each class, and of all */
static void compare_shares(const size_t *counts, const double *total, size_t classes, float *priors)
{
    double own = 0;
    for (size_t k = 0; k < classes; k++)
        own += (double)counts[k];
    for (size_t k = 0; k < classes; k++) {
        /* The group's size, estimated from this class: exactly `own` if shares are equal or no group has the class. */
        const double scaled = total[k] > 0 ? (double)counts[k] * total[classes] / total[k] : own;
        priors[k] = (float)log((scaled + 1) / (own + 1));
    }
}

cod_status cod_labelled_priors(const cod_labelled *labelled, const cod_data_options *options,
                               const cod_dataset_place *place, float *priors)
{
    const size_t classes = labelled->examples.class_count, groups = (size_t)place->groups;
    uint32_t *labels = labels_of(labelled, &labelled->train);
    size_t *counts = malloc((groups * classes + 1) * sizeof *counts);
    double *total = calloc(classes + 1, sizeof *total);
    cod_status status = COD_OK;
    if (labels == NULL || counts == NULL || total == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for %zu classes of %zu groups", classes, groups);
    COD_THEN(status, cod_placement_count(options, place, labels, labelled->train.count, classes, counts));
    for (size_t i = 0; status == COD_OK && i < groups * classes; i++) {
        total[i % classes] += (double)counts[i];
        total[classes] += (double)counts[i];
    }
    for (size_t g = 0; status == COD_OK && g < groups; g++)
        compare_shares(counts + g * classes, total, classes, priors + g * classes);
    free(labels);
    free(counts);
    free(total);
    return status;
}

cod_status cod_labelled_open(const cod_data_options *options, const cod_dataset_place *place, cod_labelled **out)
{
    *out = NULL;
    COD_TRY(cod_data_options_check(options));
    COD_REQUIRE(options->kind != COD_DATA_PICTURES, "kind: pictures have no classes");
    COD_REQUIRE(place->groups >= 1 && place->group >= 0 && place->group < place->groups,
                "no data set for group %d of %d", place->group, place->groups);
    cod_labelled *labelled = calloc(1, sizeof *labelled);
    COD_REQUIRE_MEMORY(labelled);
    const cod_status status = open_labelled(options, place, labelled);
    if (status != COD_OK) {
        cod_labelled_close(labelled);
        return status;
    }
    *out = labelled;
    return COD_OK;
}

void cod_labelled_close(cod_labelled *labelled)
{
    if (labelled == NULL)
        return;
    for (int s = 0; s < COD_SPLITS; s++)
        free(labelled->splits[s].items);
    free(labelled->train.items);
    free(labelled->table);
    cod_examples_clear(&labelled->examples);
    free(labelled);
}

cod_labelled_counts cod_labelled_count(const cod_labelled *labelled)
{
    return labelled->counts;
}

cod_shape cod_labelled_shape(const cod_labelled *labelled)
{
    return (cod_shape){1, labelled->height, labelled->width, labelled->examples.channels};
}

size_t cod_labelled_classes(const cod_labelled *labelled)
{
    return labelled->examples.class_count;
}

const char *cod_labelled_class_name(const cod_labelled *labelled, size_t index)
{
    return labelled->examples.class_names[index];
}

cod_normalisation cod_labelled_normalisation(const cod_labelled *labelled)
{
    return (cod_normalisation){labelled->examples.channels, labelled->mean, labelled->deviation};
}

cod_status cod_labelled_normalise(cod_labelled *labelled, const cod_normalisation *normalisation)
{
    const int64_t channels = labelled->examples.channels;
    COD_REQUIRE(normalisation->channels == channels, "normalisation of %lld channels does not fit data of %lld",
                (long long)normalisation->channels, (long long)channels);
    for (int64_t c = 0; c < channels; c++)
        COD_REQUIRE(normalisation->deviation[c] > 0, "channel %lld cannot be divided by a deviation of %g",
                    (long long)c, (double)normalisation->deviation[c]);
    memcpy(labelled->mean, normalisation->mean, (size_t)channels * sizeof *labelled->mean);
    memcpy(labelled->deviation, normalisation->deviation, (size_t)channels * sizeof *labelled->deviation);
    set_normalisation(labelled);
    return COD_OK;
}

size_t cod_labelled_size(const cod_labelled *labelled, cod_split split)
{
    return labelled->splits[split].count;
}

size_t cod_labelled_number(const cod_labelled *labelled, cod_split split, size_t index)
{
    return labelled->splits[split].items[index];
}

uint64_t cod_labelled_held_out_key(const cod_labelled *labelled)
{
    const index_list *val = &labelled->splits[COD_SPLIT_VAL], *test = &labelled->splits[COD_SPLIT_TEST];
    const uint64_t key = cod_hash(val->items, val->count * sizeof *val->items, val->count);
    return cod_hash(test->items, test->count * sizeof *test->items, key);
}

uint32_t cod_labelled_class(const cod_labelled *labelled, cod_split split, size_t index)
{
    return labelled->examples.labels[labelled->splits[split].items[index]];
}

/** Normalises `count` pixels of a row; a constant number of channels lets the compiler use vectors. */
static inline void convert_row(const cod_labelled *l, const uint8_t *in, int64_t count, int64_t channels, float *out)
{
    if (channels == 1) {
        const float scale = l->scale[0], shift = l->shift[0];
        for (int64_t x = 0; x < count; x++)
            out[x] = (float)in[x] * scale + shift;
        return;
    }
    for (int64_t x = 0; x < count; x++)
        for (int64_t c = 0; c < channels; c++)
            out[x * channels + c] = (float)in[x * channels + c] * l->scale[c] + l->shift[c];
}

static void mirror_row(float *row, int64_t width, int64_t channels)
{
    for (int64_t a = 0, b = width - 1; a < b; a++, b--)
        for (int64_t c = 0; c < channels; c++) {
            const float kept = row[a * channels + c];
            row[a * channels + c] = row[b * channels + c];
            row[b * channels + c] = kept;
        }
}

/** Fills `count` pixels with what lies outside an example: zero before normalisation, as MNIST's ground is. */
static void fill_ground(const cod_labelled *l, int64_t count, float *out)
{
    const int64_t channels = l->examples.channels;
    for (int64_t x = 0; x < count; x++)
        memcpy(out + x * channels, l->shift, (size_t)channels * sizeof *out);
}

/** Normalises the crop whose corner is (left, top) of an example; it may reach over the border. */
static void crop(const cod_labelled *l, const uint8_t *pixels, int64_t left, int64_t top, bool mirror, float *out)
{
    const cod_examples *e = &l->examples;
    const int64_t channels = e->channels, width = l->width;
    const int64_t first = left < 0 ? -left : 0, end = left + width > e->width ? e->width - left : width;
    for (int64_t y = top; y < top + l->height; y++, out += width * channels) {
        if (y < 0 || y >= e->height || first >= end) {
            fill_ground(l, width, out);
            continue;
        }
        fill_ground(l, first, out);
        convert_row(l, pixels + (y * e->width + left + first) * channels, end - first, channels,
                    out + first * channels);
        fill_ground(l, width - end, out + end * channels);
        if (mirror)
            mirror_row(out, width, channels);
    }
}

/** The same in bytes, and not mirrored. */
static void crop_bytes(const cod_labelled *l, const uint8_t *pixels, int64_t left, int64_t top, uint8_t *out)
{
    const cod_examples *e = &l->examples;
    const int64_t channels = e->channels, width = l->width;
    const int64_t first = left < 0 ? -left : 0, end = left + width > e->width ? e->width - left : width;
    memset(out, 0, (size_t)(l->height * width * channels));
    for (int64_t y = top; y < top + l->height; y++, out += width * channels)
        if (y >= 0 && y < e->height && first < end)
            memcpy(out + first * channels, pixels + (y * e->width + left + first) * channels,
                   (size_t)((end - first) * channels));
}

/** An example moved by (across, down) from the middle. */
static cod_status give(const cod_labelled *l, size_t index, int64_t across, int64_t down, bool mirror, float *out)
{
    const cod_examples *e = &l->examples;
    if (e->floats != NULL) {
        const float *in = e->floats + index * cod_example_values(e);
        for (int64_t c = 0; c < e->channels; c++)
            out[c] = in[c] * l->scale[c] + l->shift[c];
        return COD_OK;
    }
    const uint8_t *pixels = NULL;
    uint8_t *decoded = NULL;
    COD_TRY(pixels_of(e, index, &pixels, &decoded));
    crop(l, pixels, (e->width - l->width) / 2 + across, (e->height - l->height) / 2 + down, mirror, out);
    free(decoded);
    return COD_OK;
}

cod_status cod_labelled_read(const cod_labelled *labelled, cod_split split, size_t index, float *values)
{
    const index_list *list = &labelled->splits[split];
    COD_REQUIRE(index < list->count, "no example %zu of %zu", index, list->count);
    return give(labelled, list->items[index], 0, 0, false, values);
}

/** How training varies an example. */
typedef struct variation {
    int64_t across, down;
    bool mirror;
} variation;

static variation vary(const cod_labelled *l, const cod_sample_place *place)
{
    variation v = {0};
    if (l->reach > 0) {
        cod_rng rng = cod_sample_rng(place, COD_RNG_CROP);
        v.across = (int64_t)cod_rng_below(&rng, (uint32_t)(2 * l->reach + 1)) - l->reach;
        v.down = (int64_t)cod_rng_below(&rng, (uint32_t)(2 * l->reach + 1)) - l->reach;
    }
    if (l->mirror) {
        cod_rng rng = cod_sample_rng(place, COD_RNG_AUGMENT);
        v.mirror = cod_rng_below(&rng, 2) == 1;
    }
    return v;
}

/** @param[out] target  [classes] 1 for the example's own, 0 for the others */
static void give_class(const cod_labelled *l, size_t number, float *target)
{
    memset(target, 0, l->examples.class_count * sizeof *target);
    target[l->examples.labels[number]] = 1;
}

static cod_status draw(const void *context, size_t index, const cod_sample_place *place, float *input, float *target)
{
    const cod_labelled *l = context;
    const size_t number = l->splits[COD_SPLIT_TRAIN].items[index];
    const variation v = vary(l, place);
    give_class(l, number, target);
    return give(l, number, v.across, v.down, v.mirror, input);
}

static cod_status draw_bytes(const void *context, size_t index, const cod_sample_place *place, uint8_t *input,
                             void *target, int32_t *turn)
{
    const cod_labelled *l = context;
    const cod_examples *e = &l->examples;
    const size_t number = l->splits[COD_SPLIT_TRAIN].items[index];
    const variation v = vary(l, place);
    const uint8_t *pixels = NULL;
    uint8_t *decoded = NULL;
    COD_TRY(pixels_of(e, number, &pixels, &decoded));
    give_class(l, number, target);
    crop_bytes(l, pixels, (e->width - l->width) / 2 + v.across, (e->height - l->height) / 2 + v.down, input);
    *turn = v.mirror ? COD_TURN_MIRROR_X : 0;
    free(decoded);
    return COD_OK;
}

cod_samples cod_labelled_samples(const cod_labelled *labelled)
{
    return (cod_samples){
        .count = labelled->splits[COD_SPLIT_TRAIN].count,
        .input = cod_labelled_shape(labelled),
        .target = {1, 1, 1, (int64_t)labelled->examples.class_count},
        .context = labelled,
        .draw = draw,
        .draw_bytes = labelled->table != NULL ? draw_bytes : NULL,
        .input_table = labelled->table,
    };
}
