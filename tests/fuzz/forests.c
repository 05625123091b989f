/* Forests of Ma's score. */
#include "fuzz.h"

#include "infer/ma_model.h"
#include "io/safetensors.h"

#include <math.h>

fuzz_kind fuzz_kinds[] = {{"models", 0}, {NULL, 0}};

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static const double corners[] = {-INFINITY, 0, 1, INFINITY, NAN};
    cod_ma_model model;
    fuzz_memory(input, bytes);
    if (!fuzz_taken(cod_ma_model_load("input", &model)))
        return 0;
    fuzz_kinds[0].taken++;
    for (size_t c = 0; c < sizeof corners / sizeof corners[0]; c++) {
        double features[COD_MA_FEATURES_MAX];
        for (int i = 0; i < COD_MA_FEATURES_MAX; i++)
            features[i] = corners[c];
        for (int g = 0; g < COD_MA_GROUPS; g++)
            FUZZ_DEMAND(!isnan(cod_ma_forest_predict(&model.forests[g], features)));
    }
    cod_ma_model_clear(&model);
    return 0;
}

/** A tree of three nodes for each group. */
int fuzz_write(const char *folder)
{
    static const double linear[1 + COD_MA_GROUPS] = {1, 2, 3, 4}, value[] = {0.5, 2, 3};
    static const int32_t root[] = {0}, feature[] = {0, -1, -1}, left[] = {1, 0, 0};
    char path[4096];
    snprintf(path, sizeof path, "%s/stumps", folder);
    const cod_st_tensor tensors[] = {
        {"linear", COD_ST_F64, 1, {1 + COD_MA_GROUPS}, linear, 0},
        {"blocks.roots", COD_ST_I32, 1, {1}, root, 0},
        {"blocks.value", COD_ST_F64, 1, {3}, value, 0},
        {"blocks.feature", COD_ST_I32, 1, {3}, feature, 0},
        {"blocks.left", COD_ST_I32, 1, {3}, left, 0},
        {"bands.roots", COD_ST_I32, 1, {1}, root, 0},
        {"bands.value", COD_ST_F64, 1, {3}, value, 0},
        {"bands.feature", COD_ST_I32, 1, {3}, feature, 0},
        {"bands.left", COD_ST_I32, 1, {3}, left, 0},
        {"patches.roots", COD_ST_I32, 1, {1}, root, 0},
        {"patches.value", COD_ST_F64, 1, {3}, value, 0},
        {"patches.feature", COD_ST_I32, 1, {3}, feature, 0},
        {"patches.left", COD_ST_I32, 1, {3}, left, 0},
    };
    return cod_st_write(path, tensors, sizeof tensors / sizeof tensors[0], NULL, 0) != COD_OK;
}
