#include "data/examples_internal.h"

#include <stdio.h>

cod_status cod_examples_reserve(cod_examples *examples, size_t count, size_t classes)
{
    COD_REQUIRE(classes >= 2 && classes <= COD_EXAMPLES_MAX_CLASSES, "%zu classes cannot be learned; 2 to %d can",
                classes, COD_EXAMPLES_MAX_CLASSES);
    COD_REQUIRE(count > 0 && count < UINT32_MAX, "%zu examples cannot be counted", count);
    examples->count = examples->val_begin = examples->test_begin = count;
    examples->class_count = classes;
    examples->labels = cod_arena_alloc(&examples->arena, count * sizeof *examples->labels);
    examples->class_names = cod_arena_alloc(&examples->arena, classes * sizeof *examples->class_names);
    COD_REQUIRE_MEMORY(examples->labels);
    COD_REQUIRE_MEMORY(examples->class_names);
    for (size_t k = 0; k < classes; k++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", k);
        examples->class_names[k] = cod_arena_strdup(&examples->arena, name);
        COD_REQUIRE_MEMORY(examples->class_names[k]);
    }
    return COD_OK;
}

void cod_examples_clear(cod_examples *examples)
{
    cod_block_close(&examples->block);
    cod_files_clear(&examples->files);
    cod_arena_clear(&examples->arena);
    *examples = (cod_examples){0};
}
