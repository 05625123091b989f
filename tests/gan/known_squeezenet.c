#include "gan/known_squeezenet.h"

#include "support/test.h"

#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 2 * COD_SQUEEZENET_PARTS * COD_SQUEEZENET_LAYERS };

typedef struct known_file {
    cod_st_tensor tensors[TENSORS];
    char names[TENSORS][64];
    size_t count;
} known_file;

static void add(known_file *file, const char *part, const char *what, int rank, const int64_t *shape, double scale)
{
    cod_st_tensor *tensor = &file->tensors[file->count];
    snprintf(file->names[file->count], sizeof file->names[0], "%.47s.%s", part, what);
    *tensor = (cod_st_tensor){.name = file->names[file->count], .dtype = COD_ST_F32, .rank = rank};
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    const size_t count = cod_st_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        const uint32_t h = (uint32_t)i * 2654435761u + 40503u * (uint32_t)file->count;
        values[i] = (float)((h / 4294967296.0 - 0.5) * scale);
    }
    tensor->data = values;
    file->count++;
}

void known_squeezenet_write(const char *path, cod_squeezenet_names names, int last, known_squeezenet_fault fault,
                            const char *input)
{
    known_file file = {.count = 0};
    for (int layer = 1; layer <= last; layer++) {
        cod_squeezenet_part parts[COD_SQUEEZENET_PARTS];
        const int count = cod_squeezenet_parts(names, layer, parts);
        for (int i = 0; i < count; i++) {
            const int64_t fan_in = parts[i].inputs * parts[i].kernel * parts[i].kernel;
            const int64_t outputs =
                fault == KNOWN_SQUEEZENET_NARROW && layer == 1 ? parts[i].outputs / 2 : parts[i].outputs;
            const int64_t shape[4] = {outputs, parts[i].inputs, parts[i].kernel, parts[i].kernel};
            add(&file, parts[i].name, "weight", 4, shape, 4 / sqrt((double)fan_in));
            if (fault != KNOWN_SQUEEZENET_WITHOUT_LAST_BIAS || layer < last || i < count - 1)
                add(&file, parts[i].name, "bias", 1, shape, 0.2);
        }
    }
    const cod_st_text text = {"input", input};
    assert_ok(cod_st_write(path, file.tensors, file.count, &text, input != NULL));
    for (size_t i = 0; i < file.count; i++)
        free((void *)(uintptr_t)file.tensors[i].data);
}
