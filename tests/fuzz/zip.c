/* ZIP archives, and the arrays of NIQE's model in them. */
#include "fuzz.h"

#include "infer/niqe_model.h"
#include "io/zip.h"

#include <math.h>

fuzz_kind fuzz_kinds[] = {{"archives", 0}, {"models", 0}, {NULL, 0}};

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_zip *zip = NULL;
    if (!fuzz_taken(cod_zip_open_memory(input, bytes, &zip)))
        return 0;
    fuzz_kinds[0].taken++;
    for (size_t i = 0; i < cod_zip_count(zip); i++) {
        const cod_zip_entry *entry = cod_zip_at(zip, i);
        FUZZ_DEMAND(entry->data >= input && entry->bytes <= (size_t)(input + bytes - entry->data));
        FUZZ_DEMAND(cod_zip_find(zip, entry->name) == entry);
        (void)fuzz_taken(cod_zip_check(entry));
    }
    cod_zip_close(zip);
    cod_niqe_model model;
    if (fuzz_taken(cod_niqe_model_load(fuzz_file(input, bytes), &model))) {
        fuzz_kinds[1].taken++;
        for (int i = 0; i < COD_NIQE_FEATURES; i++)
            FUZZ_DEMAND(isfinite(model.mean[i]) && isfinite(model.covariance[i * COD_NIQE_FEATURES]));
    }
    return 0;
}

/** tests/io/golden/zip/write.py does. */
int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
