#include "data/options.h"

#include <stdarg.h>
#include <stdio.h>

#define FIELD(name) offsetof(cod_data_options, name)

const char *const cod_data_kind_names[] = {"pictures", "mnist", "iris", "folder", "synthetic", NULL};
const char *const cod_data_transfer_names[] = {"auto", "pinned", "mapped", "uint8", NULL};
static const char *const degradations[] = {"bicubic", "real_esrgan", NULL};
static const char *const placements[] = {"shared", "disjoint", "dirichlet", NULL};

static const cod_option options[] = {
    {"kind", COD_OPTION_CHOICE, FIELD(kind), "pictures", 0, 0, cod_data_kind_names,
     "What `path` holds. For super-resolution pictures (PNG, JPEG, WebP, TIFF or BMP files). For classification mnist "
     "(its four IDX "
     "files, plain or .gz; also Fashion-MNIST and the like), iris (a CSV file with a header, the class in the last "
     "column), or folder (photographs, one subfolder a class). synthetic: generated, for trials and benchmarks without "
     "any files."},
    {"path", COD_OPTION_STRING_LIST, FIELD(path), "", 0, 0, NULL,
     "Folders of high-resolution pictures (or single files), searched with their subfolders; mnist: one folder; iris: "
     "one file; folder: folders that hold one of each class; relative to the working directory."},
    {"weights", COD_OPTION_INT_LIST, FIELD(weights), "", 1, 1000, NULL,
     "How many times each picture of the folder at the same place in `path` is used in an epoch; empty = once each."},
    {"low_path", COD_OPTION_STRING_LIST, FIELD(low_path), "", 0, 0, NULL,
     "Folders of low-resolution pictures, one for each in `path`, with the same file names (a suffix such as x4 is "
     "allowed); "
     "empty = made from the high-resolution ones by MATLAB's bicubic."},
    {"val_path", COD_OPTION_STRING_LIST, FIELD(val_path), "", 0, 0, NULL,
     "Folders of validation pictures; empty = `val_count` or `val_fraction` of those in `path` are held out."},
    {"val_low_path", COD_OPTION_STRING_LIST, FIELD(val_low_path), "", 0, 0, NULL,
     "Folders of low-resolution validation pictures, one for each in `val_path`; empty = made by MATLAB's bicubic."},
    {"test_path", COD_OPTION_STRING_LIST, FIELD(test_path), "", 0, 0, NULL,
     "kind folder: folders of test photographs, which the finished model is measured on and nothing is chosen by; "
     "mnist "
     "has a test set of its own."},
    {"val_count", COD_OPTION_INT, FIELD(val_count), "0", 0, 1e9, NULL,
     "Pictures or examples held out from training for validation, the same for every seed and group; 0 = see "
     "val_fraction."},
    {"val_fraction", COD_OPTION_FLOAT, FIELD(val_fraction), "0.1", 0, 0.9, NULL,
     "Share of them held out for validation, at least one unless 0; used when val_count, val_path and folds are not "
     "set."},
    {"folds", COD_OPTION_INT, FIELD(folds), "0", 0, 1000, NULL,
     "Classification: parts, alike in classes, of which one is held out for validation (k-fold cross-validation); 0 = "
     "see val_fraction."},
    {"fold", COD_OPTION_INT, FIELD(fold), "0", 0, 999, NULL, "The part held out, from 0 to folds - 1."},
    {"placement", COD_OPTION_CHOICE, FIELD(placement), "shared", 0, 0, placements,
     "Whether every group trains on all (shared), each on its own equal part (disjoint), or each on its own part of "
     "uneven classes (dirichlet, for classification): the groups' shares of each class are drawn from a Dirichlet "
     "distribution."},
    {"alpha", COD_OPTION_FLOAT, FIELD(alpha), "0.1", 1e-3, 1e6, NULL,
     "placement dirichlet: its concentration; 0.1 gives a group few classes, 100 nearly equal shares of all."},
    {"items_per_group", COD_OPTION_INT, FIELD(items_per_group), "0", 0, 1e9, NULL,
     "Training pictures or examples that a group keeps of its part, chosen at random; 0 = all. Where a strategy makes "
     "all "
     "ranks one group, that one holds what the configured groups hold together."},
    {"patch", COD_OPTION_INT, FIELD(patch), "24", 4, 1024, NULL,
     "Side of a low-resolution training crop in pixels; the high-resolution crop is scale times larger."},
    {"size", COD_OPTION_INT, FIELD(size), "64", 8, 2048, NULL,
     "kind folder: side of what is trained on, in pixels; a photograph is brought to an eighth more on its shorter "
     "side."},
    {"batch", COD_OPTION_INT, FIELD(batch), "16", 1, 65536, NULL, "Crops or examples each rank trains on in one step."},
    {"scales", COD_OPTION_FLOAT_LIST, FIELD(scales), "1", 0.05, 1, NULL,
     "kind pictures: sizes at which each training picture is used, relative to its own: [1, 0.75, 0.5] also crops from "
     "two copies brought down by MATLAB's bicubic, which are held in memory. An epoch has every picture at every size; "
     "a size named twice counts twice. Copies smaller than one crop are left out."},
    {"degradation", COD_OPTION_CHOICE, FIELD(degradation), "bicubic", 0, 0, degradations,
     "kind pictures: what low-resolution training crops are. bicubic: cut out of what low_path gives, or out of the "
     "picture brought down by MATLAB's bicubic. real_esrgan: blurred, resized, made noisy and compressed at random, "
     "as section degradation says. Validation is on the former, unless eval.degraded is set."},
    {"gt_usm", COD_OPTION_BOOL, FIELD(gt_usm), "false", 0, 0, NULL,
     "kind pictures: train on truth sharpened by unsharp masking (kernel of 51 pixels, strength 0.5 where a pixel is "
     "more "
     "than 10 of 255 from its surroundings), as Real-ESRGAN's first network was, and degrade the sharpened pictures; "
     "recipes with a discriminator have options of their own for it. Validation is never on sharpened truth."},
    {"augment", COD_OPTION_BOOL, FIELD(augment), "true", 0, 0, NULL,
     "Whether training varies at random what it takes: pictures by the 8 flips and rotations, photographs of kind "
     "folder "
     "by place of the crop and a horizontal flip, mnist by `shift`."},
    {"shift", COD_OPTION_INT, FIELD(shift), "0", 0, 64, NULL,
     "mnist: pixels by which a training example is moved at most, in each direction; 2 is usual."},
    {"cache_mb", COD_OPTION_INT, FIELD(cache_mb), "4096", 0, 1e9, NULL,
     "Memory for decoded pictures in MiB, shared by the processes of a node through /dev/shm; what does not fit is "
     "decoded "
     "at each use."},
    {"threads", COD_OPTION_INT, FIELD(threads), "1", 0, 256, NULL,
     "Threads of each rank that make batches ahead of time; 0 = made between steps."},
    {"prefetch", COD_OPTION_INT, FIELD(prefetch), "4", 1, 256, NULL, "Batches held ready beside the one in use."},
    {"transfer", COD_OPTION_CHOICE, FIELD(transfer), "auto", 0, 0, cod_data_transfer_names,
     "How mini-batches reach a device with memory of its own, such as a GPU: from pinned memory, by copies that run "
     "beside computing "
     "(pinned, which auto is); read in the host's memory by the device itself (mapped); or in the 8 bits of their "
     "pixels, which the "
     "device turns and converts, a quarter of the bytes (uint8; kinds pictures, mnist, folder and synthetic). Training "
     "gives the same bits "
     "with each; `codistill bench copy` compares them."},
    {"synthetic_count", COD_OPTION_INT, FIELD(synthetic_count), "32", 2, 100000, NULL,
     "Number of generated pictures or examples; used by kind synthetic."},
    {"synthetic_shape", COD_OPTION_INT_LIST, FIELD(synthetic_shape), "32, 32, 3", 1, 65536, NULL,
     "Classification: height, width and channels of a generated example."},
    {"synthetic_classes", COD_OPTION_INT, FIELD(synthetic_classes), "10", 2, 65536, NULL,
     "Classification: classes of the generated examples."},
};

const cod_option_table cod_data_option_table = {
    .section = "data",
    .help = "What is trained and validated on, and how batches are made of it.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .struct_bytes = sizeof(cod_data_options),
};

/** Where what is found goes. */
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

/** What only some kinds of data have. */
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
