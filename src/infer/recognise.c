/* Recognises architectures by their tensors alone, without our metadata. */
#include "infer_internal.h"

#include <stdio.h>

enum { SETTINGS = 4 };

/**
 * Reads what an architecture's options were, in the order of its keys, of which the last may be NULL. Returns false
 * where the file holds another architecture.
 */
typedef struct recogniser {
    const char *kind, *keys[SETTINGS];
    bool (*read)(const cod_st_file *file, int64_t values[SETTINGS]);
} recogniser;

static const cod_st_tensor *convolution(const cod_st_file *file, const char *name)
{
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    return tensor != NULL && tensor->rank == 4 && tensor->shape[0] > 0 ? tensor : NULL;
}

/** How many of PREFIX0SUFFIX, PREFIX1SUFFIX … the file has. */
static int64_t count_layers(const cod_st_file *file, const char *prefix, const char *suffix)
{
    char name[64];
    for (int64_t i = 0;; i++) {
        snprintf(name, sizeof name, "%s%lld%s", prefix, (long long)i, suffix);
        if (cod_st_tensor_find(file, name) == NULL)
            return i;
    }
}

/**
 * Features from conv_first, blocks by counting, the upscaling factor from the convolutions before the pixel shuffles.
 *
 * @param own        a convolution that this network has and others lack
 * @param up, up_2x  the convolutions before the first and, where the factor is 4, before the second pixel shuffle
 */
static bool residual_read(const cod_st_file *file, const char *own, const char *up, const char *up_2x,
                          int64_t values[SETTINGS])
{
    const cod_st_tensor *first = convolution(file, "conv_first.weight"), *shuffled = convolution(file, up);
    if (first == NULL || shuffled == NULL || convolution(file, own) == NULL ||
        convolution(file, "conv_last.weight") == NULL)
        return false;
    values[0] = first->shape[0];
    values[1] = count_layers(file, "body.", ".conv1.weight");
    values[2] = cod_st_tensor_find(file, up_2x) != NULL ? 4 : shuffled->shape[0] == 9 * values[0] ? 3 : 2;
    return values[1] > 0;
}

/** BasicSR's MSRResNet. */
static bool msrresnet_read(const cod_st_file *file, int64_t values[SETTINGS])
{
    return residual_read(file, "conv_hr.weight", "upconv1.weight", "upconv2.weight", values);
}

/**
 * BasicSR's RRDBNet: features and scale from conv_first, blocks by counting, growth from a dense block's first
 * convolution.
 */
static bool rrdb_read(const cod_st_file *file, int64_t values[SETTINGS])
{
    const cod_st_tensor *first = convolution(file, "conv_first.weight"),
                        *dense = convolution(file, "body.0.rdb1.conv1.weight");
    if (first == NULL || dense == NULL || convolution(file, "conv_up2.weight") == NULL)
        return false;
    values[0] = first->shape[0];
    values[1] = count_layers(file, "body.", ".rdb1.conv1.weight");
    values[2] = dense->shape[0];
    values[3] = first->shape[1] == 3 ? 4 : first->shape[1] == 3 * 4 ? 2 : 1;
    return true;
}

/** BasicSR's EDSR. The file does not tell res_scale, img_range and rgb_mean: they are taken to be the defaults. */
static bool edsr_read(const cod_st_file *file, int64_t values[SETTINGS])
{
    return residual_read(file, "conv_after_body.weight", "upsample.0.weight", "upsample.2.weight", values);
}

/** SRVGGNetCompact: convolution and PReLU in turn below "body", the scale from the last one's channels. */
static bool compact_read(const cod_st_file *file, int64_t values[SETTINGS])
{
    const cod_st_tensor *first = convolution(file, "body.0.weight"), *slope = cod_st_tensor_find(file, "body.1.weight");
    const int64_t layers = count_layers(file, "body.", ".weight");
    char name[64];
    snprintf(name, sizeof name, "body.%lld.weight", (long long)layers - 1);
    const cod_st_tensor *last = layers > 2 ? convolution(file, name) : NULL;
    if (first == NULL || slope == NULL || slope->rank != 1 || last == NULL || layers % 2 == 0)
        return false;
    values[0] = first->shape[0];
    values[1] = (layers - 3) / 2;
    for (values[2] = 1; values[2] <= 4; values[2]++)
        if (last->shape[0] == 3 * values[2] * values[2])
            return true;
    return false;
}

cod_status cod_model_recognise(const cod_st_file *file, cod_arena *arena, const cod_model_kind **kind, void **options)
{
    static const recogniser known[] = {
        {"msrresnet", {"num_feat", "num_block", "scale"}, msrresnet_read},
        {"rrdb", {"num_feat", "num_block", "num_grow_ch", "scale"}, rrdb_read},
        {"edsr", {"num_feat", "num_block", "scale"}, edsr_read},
        {"compact", {"num_feat", "num_conv", "scale"}, compact_read},
    };
    *kind = NULL;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        int64_t values[SETTINGS];
        char texts[SETTINGS][24];
        cod_st_text settings[SETTINGS];
        if (!known[k].read(file, values))
            continue;
        size_t count = 0;
        for (; count < SETTINGS && known[k].keys[count] != NULL; count++) {
            snprintf(texts[count], sizeof texts[count], "%lld", (long long)values[count]);
            settings[count] = (cod_st_text){known[k].keys[count], texts[count]};
        }
        *kind = cod_model_kind_find(known[k].kind);
        COD_REQUIRE(*kind != NULL, "this version lacks the model '%s'", known[k].kind);
        return cod_model_options(*kind, settings, count, arena, options);
    }
    return COD_OK;
}
