#include "data/options.h"

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

cod_status cod_data_options_check(const cod_data_options *o)
{
    if (o->kind == COD_DATA_SYNTHETIC) {
        COD_REQUIRE(o->val_count < o->synthetic_count,
                    "val_count: %lld leaves none of the %lld generated pictures to train on", (long long)o->val_count,
                    (long long)o->synthetic_count);
        return COD_OK;
    }
    COD_REQUIRE(o->path.count > 0, "path: name at least one folder of pictures, or set kind: synthetic");
    COD_REQUIRE(o->weights.count == 0 || o->weights.count == o->path.count,
                "weights: %zu given for %zu folders in path", o->weights.count, o->path.count);
    COD_REQUIRE(o->low_path.count == 0 || o->low_path.count == o->path.count,
                "low_path: %zu given for %zu folders in path", o->low_path.count, o->path.count);
    COD_REQUIRE(o->val_low_path.count == 0 || o->val_low_path.count == o->val_path.count,
                "val_low_path: %zu given for %zu folders in val_path", o->val_low_path.count, o->val_path.count);
    COD_REQUIRE(o->val_path.count == 0 || o->val_count == 0, "val_count: val_path already says what to validate on");
    return COD_OK;
}
