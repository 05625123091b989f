#include "gan/known_vgg.h"

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 16 };

/** As known_values() of tests/golden/make_gan.py. */
static float *known_values(size_t count, uint32_t layer, double scale)
{
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        const uint32_t h = (uint32_t)i * 2654435761u + 40503u * layer;
        values[i] = (float)((h / 4294967296.0 - 0.5) * scale);
    }
    return values;
}

void known_vgg_write(const char *path, cod_vgg_layer last, known_fault fault, const char *key, const char *value)
{
    char names[2 * LAYERS][48];
    cod_st_tensor tensors[2 * LAYERS];
    size_t count = 0;
    int64_t before = 3;
    for (cod_vgg_layer at = {1, 1};
         at.block < last.block || (at.block == last.block && at.convolution <= last.convolution);) {
        const int index = cod_vgg_index(at);
        const int64_t width = 64 << (at.block < 4 ? at.block - 1 : 3),
                      channels = fault == KNOWN_NARROW ? width / 2 : width;
        const size_t elements = (size_t)(channels * before * 9);
        snprintf(names[count], sizeof names[count], "features.%d.weight", index);
        tensors[count] =
            (cod_st_tensor){.name = names[count],
                            .dtype = COD_ST_F32,
                            .rank = 4,
                            .shape = {channels, before, 3, 3},
                            .data = known_values(elements, (uint32_t)index, 4 / sqrt(9.0 * (double)before))};
        count++;
        snprintf(names[count], sizeof names[count], "features.%d.bias", index);
        tensors[count] = (cod_st_tensor){.name = names[count],
                                         .dtype = COD_ST_F32,
                                         .rank = 1,
                                         .shape = {channels},
                                         .data = known_values((size_t)channels, (uint32_t)index + 100, 0.2)};
        if (fault == KNOWN_WITHOUT_FIRST_BIAS && index == 0)
            free((void *)(uintptr_t)tensors[count].data);
        else
            count++;
        before = channels;
        if (at.convolution++ == cod_vgg_convolutions(at.block))
            at = (cod_vgg_layer){at.block + 1, 1};
    }
    const cod_st_text text = {key, value};
    assert_ok(cod_st_write(path, tensors, count, &text, key != NULL));
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)tensors[i].data);
}
