#include "data/options.h"

#include <stdarg.h>
#include <stdio.h>

#define FIELD(name) offsetof(cod_data_options, name)

static const char *const kinds[] = {"images", "synthetic", NULL};
static const char *const placements[] = {"shared", "disjoint", NULL};

static const cod_option options[] = {
    {"kind", COD_OPTION_CHOICE, FIELD(kind), "images", 0, 0, kinds,
     "Where pictures come from: PNG and JPEG files below `path`, or generated ones, for trials and benchmarks without "
     "any files."},
    {"path", COD_OPTION_STRING_LIST, FIELD(path), "", 0, 0, NULL,
     "Folders of high-resolution pictures (or single files), searched with their subfolders; relative to the working "
     "directory."},
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
    {"val_count", COD_OPTION_INT, FIELD(val_count), "0", 0, 1e9, NULL,
     "Pictures held out from training for validation, the same for every seed and group; 0 = see val_fraction."},
    {"val_fraction", COD_OPTION_FLOAT, FIELD(val_fraction), "0.1", 0, 0.9, NULL,
     "Share of the pictures held out for validation, at least one unless 0; used when val_count and val_path are not "
     "set."},
    {"placement", COD_OPTION_CHOICE, FIELD(placement), "shared", 0, 0, placements,
     "Whether every group trains on all pictures (shared) or each on its own equal part of them (disjoint)."},
    {"patch", COD_OPTION_INT, FIELD(patch), "24", 4, 1024, NULL,
     "Side of a low-resolution training crop in pixels; the high-resolution crop is scale times larger."},
    {"batch", COD_OPTION_INT, FIELD(batch), "16", 1, 65536, NULL, "Crops each rank trains on in one step."},
    {"augment", COD_OPTION_BOOL, FIELD(augment), "true", 0, 0, NULL,
     "Whether each crop is turned by one of the 8 flips and rotations, chosen at random."},
    {"cache_mb", COD_OPTION_INT, FIELD(cache_mb), "4096", 0, 1e9, NULL,
     "Memory for decoded pictures in MiB, shared by the processes of a node through /dev/shm; what does not fit is "
     "decoded "
     "at each use."},
    {"threads", COD_OPTION_INT, FIELD(threads), "1", 0, 256, NULL,
     "Threads of each rank that make batches ahead of time; 0 = made between steps."},
    {"prefetch", COD_OPTION_INT, FIELD(prefetch), "4", 1, 256, NULL, "Batches held ready beside the one in use."},
    {"synthetic_count", COD_OPTION_INT, FIELD(synthetic_count), "32", 2, 100000, NULL,
     "Number of generated pictures; used by kind synthetic."},
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

void cod_data_options_examine(const cod_data_options *o, cod_data_complaint complaint, void *context)
{
    const examination e = {complaint, context};
    if (o->kind == COD_DATA_SYNTHETIC) {
        if (o->val_count >= o->synthetic_count)
            complain(&e, "val_count", "%lld leaves none of the %lld generated pictures to train on",
                     (long long)o->val_count, (long long)o->synthetic_count);
        return;
    }
    const size_t folders = o->path.count;
    if (folders == 0)
        complain(&e, "path", "name at least one folder of pictures, or set kind: synthetic");
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
