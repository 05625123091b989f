/* Architectures known by their tensors alone, without metadata of ours. */
#include "infer_internal.h"

#include <stdio.h>

/** BasicSR's MSRResNet: features from conv_first, blocks by counting, the scale from the shuffled convolutions. */
static bool msrresnet_read(const cod_st_file *file, int64_t *features, int64_t *blocks, int64_t *scale)
{
    const cod_st_tensor *first = cod_st_tensor_find(file, "conv_first.weight");
    const cod_st_tensor *up = cod_st_tensor_find(file, "upconv1.weight");
    if (first == NULL || first->rank != 4 || up == NULL || up->rank != 4 || first->shape[0] < 1 ||
        cod_st_tensor_find(file, "conv_hr.weight") == NULL || cod_st_tensor_find(file, "conv_last.weight") == NULL)
        return false;
    char name[64];
    *features = first->shape[0];
    for (*blocks = 0;; ++*blocks) {
        snprintf(name, sizeof name, "body.%lld.conv1.weight", (long long)*blocks);
        if (cod_st_tensor_find(file, name) == NULL)
            break;
    }
    if (cod_st_tensor_find(file, "upconv2.weight") != NULL)
        *scale = 4;
    else
        *scale = up->shape[0] == 9 * *features ? 3 : 2;
    return *blocks > 0;
}

cod_status cod_model_recognise(const cod_st_file *file, cod_arena *arena, const cod_model_kind **kind, void **options)
{
    int64_t numbers[3];
    char texts[3][24];
    *kind = NULL;
    if (!msrresnet_read(file, &numbers[0], &numbers[1], &numbers[2]))
        return COD_OK;
    for (int i = 0; i < 3; i++)
        snprintf(texts[i], sizeof texts[i], "%lld", (long long)numbers[i]);
    const cod_st_text settings[] = {{"num_feat", texts[0]}, {"num_block", texts[1]}, {"scale", texts[2]}};
    *kind = cod_model_kind_find("msrresnet");
    COD_REQUIRE(*kind != NULL, "this version lacks the model 'msrresnet'");
    return cod_model_options(*kind, settings, 3, arena, options);
}
