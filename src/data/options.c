#include "data/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(cod_data_options, name)

const char *const cod_data_kind_names[] = {"pictures", "mnist", "iris", "folder", "synthetic", NULL};
const char *const cod_data_transfer_names[] = {"auto", "pinned", "mapped", "uint8", NULL};
static const char *const degradations[] = {"bicubic", "real_esrgan", NULL};
static const char *const placements[] = {"shared", "disjoint", "dirichlet", NULL};

static const cod_option options[] = {
    {"kind", COD_OPTION_CHOICE, FIELD(kind), "pictures", 0, 0, cod_data_kind_names,
     "What `path` holds. For super-resolution: pictures (PNG, JPEG, WebP, TIFF or BMP files). For classification: "
     "mnist (the four IDX files of MNIST or of a data set like it, such as Fashion-MNIST, plain or .gz), iris (a CSV "
     "file with the class in the last column, with a header or without), or folder (photographs, one subfolder for "
     "each class). For either: synthetic (generated data, for trials and benchmarks without files)."},
    {"path", COD_OPTION_STRING_LIST, FIELD(path), "", 0, 0, NULL,
     "Where the training data is, relative to the working directory. pictures: folders of high-resolution pictures, "
     "searched with their subfolders, or single files. mnist: one folder. iris: one file. folder: folders that have "
     "one subfolder for each class."},
    {"weights", COD_OPTION_INT_LIST, FIELD(weights), "", 1, 1000, NULL,
     "kind pictures: how many times an epoch uses each picture of a folder; one number for each folder in `path`. "
     "Empty = once each."},
    {"low_path", COD_OPTION_STRING_LIST, FIELD(low_path), "", 0, 0, NULL,
     "kind pictures: folders of low-resolution pictures, one for each folder in `path`, with the same file names (a "
     "suffix such as x4 is allowed). Empty = MATLAB's bicubic makes them from the high-resolution pictures."},
    {"val_path", COD_OPTION_STRING_LIST, FIELD(val_path), "", 0, 0, NULL,
     "Folders of validation data, of the same kind as the data in `path`. Empty = `val_count`, `val_fraction` or "
     "`folds` holds out part of the data in `path`."},
    {"val_low_path", COD_OPTION_STRING_LIST, FIELD(val_low_path), "", 0, 0, NULL,
     "kind pictures: folders of low-resolution validation pictures, one for each folder in `val_path`. Empty = "
     "MATLAB's bicubic makes them."},
    {"val_sets", COD_OPTION_STRING_LIST, FIELD(val_sets), "", 0, 0, NULL,
     "Further validation sets, of the same kind as the data in `path`: each a path or NAME=PATH, such as "
     "[set5=data/Set5, photos/mine]; without NAME, the last part of the path is the name. Each evaluation measures "
     "them, too, and metrics, TensorBoard and summary.json have psnr_y.set5 and so on beside psnr_y. eval.images is "
     "for each of them, eval.best_set makes one of them choose the best model."},
    {"test_path", COD_OPTION_STRING_LIST, FIELD(test_path), "", 0, 0, NULL,
     "kind folder: folders of test photographs. The finished model is measured on them; they do not influence which "
     "model is chosen. Empty = no test set. mnist has a test set of its own."},
    {"val_count", COD_OPTION_INT, FIELD(val_count), "0", 0, 1e9, NULL,
     "Number of pictures or examples held out of `path` for validation, the same ones for every seed and group. 0 = "
     "val_fraction decides."},
    {"val_fraction", COD_OPTION_FLOAT, FIELD(val_fraction), "0.1", 0, 0.9, NULL,
     "Share of the pictures or examples in `path` held out for validation: at least one, unless this is 0. Used when "
     "val_count, val_path and folds are not set."},
    {"folds", COD_OPTION_INT, FIELD(folds), "0", 0, 1000, NULL,
     "Classification: number of parts for k-fold cross-validation, each with about the same mix of classes. One part "
     "is held out for validation. 0 = val_fraction decides."},
    {"fold", COD_OPTION_INT, FIELD(fold), "0", 0, 999, NULL,
     "Which of the `folds` parts is held out, from 0 to folds - 1."},
    {"placement", COD_OPTION_CHOICE, FIELD(placement), "shared", 0, 0, placements,
     "Which training data each group has. shared: all of it. disjoint: its own equal part. dirichlet: its own part "
     "with uneven classes (classification); the groups' shares of each class are drawn from a Dirichlet distribution."},
    {"alpha", COD_OPTION_FLOAT, FIELD(alpha), "0.1", 1e-3, 1e6, NULL,
     "placement dirichlet: concentration of the distribution. 0.1 gives each group few classes; 100 gives all groups "
     "nearly equal shares."},
    {"items_per_group", COD_OPTION_INT, FIELD(items_per_group), "0", 0, 1e9, NULL,
     "Number of training pictures or examples that each group keeps from its part, chosen at random. 0 = all. A "
     "strategy that joins all ranks in one group keeps as many as the configured groups would keep together."},
    {"patch", COD_OPTION_INT, FIELD(patch), "24", 4, 1024, NULL,
     "Side of a low-resolution training crop in pixels. The high-resolution crop is `scale` times as large."},
    {"size", COD_OPTION_INT, FIELD(size), "64", 8, 2048, NULL,
     "kind folder: side of the training crops in pixels. The shorter side of each photograph is first resized to 9/8 "
     "of this."},
    {"batch", COD_OPTION_INT, FIELD(batch), "16", 1, 65536, NULL,
     "Crops or examples that each rank trains on in one step."},
    {"scales", COD_OPTION_FLOAT_LIST, FIELD(scales), "1", 0.05, 1, NULL,
     "kind pictures: sizes at which training uses each picture, relative to the original. [1, 0.75, 0.5] adds two "
     "smaller copies made by MATLAB's bicubic and held in memory. An epoch uses every picture at every size; a size "
     "listed twice is used twice. Copies smaller than one crop are left out."},
    {"degradation", COD_OPTION_CHOICE, FIELD(degradation), "bicubic", 0, 0, degradations,
     "kind pictures: how low-resolution training crops are made. bicubic: cut out of the pictures in low_path, or out "
     "of the picture reduced by MATLAB's bicubic. real_esrgan: blurred, resized, made noisy and compressed at random, "
     "as section degradation says. Validation pictures are made by bicubic in both cases, unless eval.degraded is "
     "set."},
    {"gt_usm", COD_OPTION_BOOL, FIELD(gt_usm), "false", 0, 0, NULL,
     "kind pictures: sharpen the true pictures that training compares with, and degrade the sharpened ones, as for "
     "Real-ESRGAN's first network. Unsharp masking with a kernel of 51 pixels and strength 0.5 applies where a pixel "
     "differs by more than 10 of 255 from its surroundings. Validation always compares with the original pictures. "
     "Recipes with a discriminator have their own options for this in section gan."},
    {"augment", COD_OPTION_BOOL, FIELD(augment), "true", 0, 0, NULL,
     "Vary the training data at random. Pictures: the 8 flips and rotations. kind folder: position of the crop and a "
     "horizontal flip. mnist: `shift`."},
    {"permute_channels", COD_OPTION_BOOL, FIELD(permute_channels), "false", 0, 0, NULL,
     "kind pictures: put red, green and blue in a random order in each training crop (Yoo et al. 2020). With 92 "
     "photographs it delayed overfitting, but the best model was no better (docs/evidence.md)."},
    {"shift", COD_OPTION_INT, FIELD(shift), "0", 0, 64, NULL,
     "mnist: largest number of pixels by which a training example is moved in each direction. 2 is usual; 0 = no "
     "shift."},
    {"cache_mb", COD_OPTION_INT, FIELD(cache_mb), "4096", 0, 1e9, NULL,
     "Memory for decoded pictures in MiB, shared by the processes of a node through /dev/shm. Pictures that do not "
     "fit are decoded again at each use."},
    {"threads", COD_OPTION_INT, FIELD(threads), "1", 0, 256, NULL,
     "Threads of each rank that make batches ahead of time. 0 = the rank makes each batch between two steps."},
    {"prefetch", COD_OPTION_INT, FIELD(prefetch), "4", 1, 256, NULL,
     "Batches that are kept ready in addition to the one in use."},
    {"transfer", COD_OPTION_CHOICE, FIELD(transfer), "auto", 0, 0, cod_data_transfer_names,
     "How mini-batches reach a device with memory of its own, such as a GPU. pinned: copied from pinned memory while "
     "the device computes. mapped: the device reads them in the host's memory. uint8: copied as 8-bit pixels, a "
     "quarter of the bytes; the device flips and converts them (kinds pictures, mnist, folder and synthetic). auto: "
     "pinned. All give the same bits; `codistill bench copy` shows which is fastest."},
    {"synthetic_count", COD_OPTION_INT, FIELD(synthetic_count), "32", 2, 100000, NULL,
     "kind synthetic: number of generated pictures or examples."},
    {"synthetic_shape", COD_OPTION_INT_LIST, FIELD(synthetic_shape), "32, 32, 3", 1, 65536, NULL,
     "kind synthetic, classification: height, width and channels of each generated example."},
    {"synthetic_classes", COD_OPTION_INT, FIELD(synthetic_classes), "10", 2, 65536, NULL,
     "kind synthetic, classification: number of classes."},
};

const cod_option_table cod_data_option_table = {
    .section = "data",
    .help = "Data for training and validation, and how batches are made from it.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .struct_bytes = sizeof(cod_data_options),
};

static const char name_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const char *cod_data_set_path(const char *item)
{
    const size_t length = strspn(item, name_characters);
    return length > 0 && item[length] == '=' ? item + length + 1 : item;
}

bool cod_data_set_name(const char *item, char name[COD_DATA_SET_NAME])
{
    const char *path = cod_data_set_path(item), *first = item;
    size_t length = path > item ? (size_t)(path - item) - 1 : 0;
    if (path == item) {
        size_t end = strlen(path);
        while (end > 1 && path[end - 1] == '/')
            end--;
        for (first = path + end; first > path && first[-1] != '/';)
            first--;
        length = (size_t)(path + end - first);
        for (size_t i = length; i-- > 1;)
            if (first[i] == '.')
                length = i;
    }
    const bool good = length > 0 && length < COD_DATA_SET_NAME && strspn(first, name_characters) >= length;
    snprintf(name, COD_DATA_SET_NAME, "%.*s", good ? (int)length : 0, first);
    return good;
}

/** Receiver of the problems found. */
typedef struct examination {
    cod_data_complaint complain;
    void *context;
} examination;

static void complain(const examination *e, const char *key, const char *fmt, ...) COD_PRINTF(3, 4);
static void complain(const examination *e, const char *key, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    e->complain(e->context, key, text);
}

/** Checks options that only some kinds of data have. */
static void examine_kind(const examination *e, const cod_data_options *o)
{
    const char *kind = cod_data_kind_names[o->kind];
    const bool pictures = o->kind == COD_DATA_PICTURES;
    const bool scaled = o->scales.count > 1 || (o->scales.count == 1 && o->scales.items[0] != 1);
    if (!pictures && o->low_path.count + o->val_low_path.count > 0)
        complain(e, o->low_path.count > 0 ? "low_path" : "val_low_path", "is for kind pictures, not %s", kind);
    if (!pictures && o->weights.count > 0)
        complain(e, "weights", "is for kind pictures, not %s", kind);
    if (o->degradation != COD_DEGRADATION_BICUBIC && !pictures && o->kind != COD_DATA_SYNTHETIC)
        complain(e, "degradation", "%s is for kind pictures, not %s", degradations[o->degradation], kind);
    if (o->degradation != COD_DEGRADATION_BICUBIC && o->low_path.count > 0)
        complain(e, "degradation", "%s makes the low-resolution pictures that low_path gives: leave one of them out",
                 degradations[o->degradation]);
    if (o->gt_usm && !pictures && o->kind != COD_DATA_SYNTHETIC)
        complain(e, "gt_usm", "is for kind pictures, not %s", kind);
    if (o->permute_channels && !pictures && o->kind != COD_DATA_SYNTHETIC)
        complain(e, "permute_channels", "is for kind pictures, not %s", kind);
    if (scaled && !pictures && o->kind != COD_DATA_SYNTHETIC)
        complain(e, "scales", "is for kind pictures, not %s", kind);
    if (scaled && o->low_path.count > 0)
        complain(e, "scales", "low_path gives low-resolution pictures of one size: leave one of them out");
    if (o->kind != COD_DATA_FOLDER && o->test_path.count > 0)
        complain(e, "test_path", "is for kind folder, not %s", kind);
    if ((o->kind == COD_DATA_MNIST || o->kind == COD_DATA_IRIS) && o->val_path.count > 0)
        complain(e, "val_path", "%s holds out a part of its training examples: see val_fraction and folds", kind);
    if ((o->kind == COD_DATA_MNIST || o->kind == COD_DATA_IRIS) && o->path.count > 1)
        complain(e, "path", "%s is one %s, not %zu", kind, o->kind == COD_DATA_MNIST ? "folder" : "file",
                 o->path.count);
    if (pictures && o->placement == COD_PLACEMENT_DIRICHLET)
        complain(e, "placement", "dirichlet divides classes, which kind pictures has not; disjoint would do");
    if (o->transfer == COD_TRANSFER_UINT8 && o->kind == COD_DATA_IRIS)
        complain(e, "transfer",
                 "uint8 is for data of 8-bit pixels, and iris are measurements; auto, pinned and mapped take them");
    if (pictures && o->folds > 0)
        complain(e, "folds", "is for classification, not kind pictures");
}

static void examine_folds(const examination *e, const cod_data_options *o)
{
    if (o->folds == 1)
        complain(e, "folds", "1 part leaves nothing to train on; at least 2");
    if (o->folds > 0 && o->fold >= o->folds)
        complain(e, "fold", "%lld is not one of %lld folds, 0 to %lld", (long long)o->fold, (long long)o->folds,
                 (long long)o->folds - 1);
    if (o->folds > 0 && (o->val_count > 0 || o->val_path.count > 0))
        complain(e, "folds", "%s already says what to validate on", o->val_count > 0 ? "val_count" : "val_path");
}

static void examine_sets(const examination *e, const cod_data_options *o)
{
    char name[COD_DATA_SET_NAME], other[COD_DATA_SET_NAME];
    if (o->val_sets.count > COD_DATA_MAX_SETS)
        complain(e, "val_sets", "%zu sets are more than %d", o->val_sets.count, COD_DATA_MAX_SETS);
    for (size_t i = 0; i < o->val_sets.count; i++) {
        const char *item = o->val_sets.items[i];
        if (!cod_data_set_name(item, name))
            complain(e, "val_sets", "'%s' gives no name of letters, digits, - and _: write NAME=PATH", item);
        for (size_t k = 0; k < i; k++)
            if (name[0] != '\0' && cod_data_set_name(o->val_sets.items[k], other) && strcmp(name, other) == 0)
                complain(e, "val_sets", "two sets are called '%s': write NAME=PATH", name);
    }
}

static const char *wanted_path(int kind)
{
    switch (kind) {
    case COD_DATA_PICTURES:
        return "at least one folder of pictures (tools/get-data.sh photos brings some to data/photos)";
    case COD_DATA_MNIST:
        return "the folder of its four files (tools/get-data.sh mnist brings them to data/mnist)";
    case COD_DATA_IRIS:
        return "the CSV file (tools/get-data.sh iris brings data/iris/iris.csv)";
    default:
        return "at least one folder with a subfolder for each class (tools/get-data.sh insects brings "
               "data/insects/train)";
    }
}

void cod_data_options_examine(const cod_data_options *o, cod_data_complaint complaint, void *context)
{
    const examination e = {complaint, context};
    examine_kind(&e, o);
    examine_folds(&e, o);
    examine_sets(&e, o);
    if (o->kind == COD_DATA_SYNTHETIC) {
        if (o->val_count >= o->synthetic_count)
            complain(&e, "val_count", "%lld leaves none of the %lld generated pictures to train on",
                     (long long)o->val_count, (long long)o->synthetic_count);
        if (o->synthetic_shape.count != 3)
            complain(&e, "synthetic_shape", "wants three numbers, height, width and channels, not %zu",
                     o->synthetic_shape.count);
        return;
    }
    const size_t folders = o->path.count;
    if (folders == 0)
        complain(&e, "path", "name %s, or set kind: synthetic", wanted_path(o->kind));
    if (o->weights.count != 0 && o->weights.count != folders)
        complain(&e, "weights", "%zu given for %zu folders in path", o->weights.count, folders);
    if (o->low_path.count != 0 && o->low_path.count != folders)
        complain(&e, "low_path", "%zu given for %zu folders in path", o->low_path.count, folders);
    if (o->val_low_path.count != 0 && o->val_low_path.count != o->val_path.count)
        complain(&e, "val_low_path", "%zu given for %zu folders in val_path", o->val_low_path.count, o->val_path.count);
    if (o->val_path.count > 0 && o->val_count > 0)
        complain(&e, "val_count", "val_path already says what to validate on");
}

static void keep_first(void *context, const char *key, const char *text)
{
    cod_status *status = context;
    if (*status == COD_OK)
        *status = cod_fail(COD_ERR_ARGUMENT, "%s: %s", key, text);
}

cod_status cod_data_options_check(const cod_data_options *o)
{
    cod_status status = COD_OK;
    cod_data_options_examine(o, keep_first, &status);
    return status;
}
