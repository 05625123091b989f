/* Tables of measurements. */
#include "fuzz.h"

#include "data/examples_internal.h"

#include <math.h>

fuzz_kind fuzz_kinds[] = {{"tables", 0}, {NULL, 0}};

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    const char *path = fuzz_file(input, bytes);
    const cod_data_options options = {.kind = COD_DATA_IRIS, .path = {.items = &path, .count = 1}};
    cod_examples examples = {0};
    if (fuzz_taken(cod_iris_read(&options, false, &examples))) {
        fuzz_kinds[0].taken++;
        FUZZ_DEMAND(examples.count > 0 && examples.class_count >= 2 && examples.class_count <= examples.count);
        for (size_t i = 0; i < examples.count; i++)
            FUZZ_DEMAND(examples.labels[i] < examples.class_count);
        for (size_t i = 0; i < examples.count * cod_example_values(&examples); i++)
            FUZZ_DEMAND(isfinite(examples.floats[i]));
    }
    cod_examples_clear(&examples);
    return 0;
}

int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
