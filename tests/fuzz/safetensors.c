/* Files of tensors, in memory. */
#include "fuzz.h"

#include "io/safetensors.h"

fuzz_kind fuzz_kinds[] = {{"files", 0}, {NULL, 0}};

static void read_tensor(const cod_st_file *file, const cod_st_tensor *tensor, const uint8_t *input, size_t bytes)
{
    const size_t count = cod_st_count(tensor), used = tensor->bytes;
    FUZZ_DEMAND(used == count * cod_st_dtype_bytes(tensor->dtype) && used <= bytes);
    FUZZ_DEMAND((const uint8_t *)tensor->data >= input && (const uint8_t *)tensor->data + used <= input + bytes);
    FUZZ_DEMAND(cod_st_tensor_find(file, tensor->name) == tensor);
    float *values = malloc(count * sizeof *values + 1);
    FUZZ_DEMAND(values != NULL);
    (void)fuzz_taken(cod_st_to_f32(tensor, values, count));
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_st_file *file = NULL;
    if (!fuzz_taken(cod_st_open_memory(input, bytes, &file)))
        return 0;
    fuzz_kinds[0].taken++;
    for (size_t i = 0; i < cod_st_tensor_count(file); i++)
        read_tensor(file, cod_st_tensor_at(file, i), input, bytes);
    for (size_t i = 0; i < cod_st_metadata_count(file); i++) {
        const cod_st_text *text = cod_st_metadata_at(file, i);
        FUZZ_DEMAND(strcmp(cod_st_metadata(file, text->key), text->value) == 0);
    }
    cod_st_close(file);
    return 0;
}

/** A tensor of each dtype, one without values, a scalar, and metadata. */
int fuzz_write(const char *folder)
{
    static const unsigned char data[64] = {0, 0, 128, 63};
    enum { DTYPES = COD_ST_F8_E5M2 + 1 };
    char path[4096], names[DTYPES][16];
    cod_st_tensor tensors[DTYPES];
    for (int i = 0; i < DTYPES; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (cod_st_tensor){
            .name = names[i], .dtype = (cod_st_dtype)i, .rank = i % 3, .shape = {i % 3 + 1, i % 5}, .data = data};
    }
    snprintf(path, sizeof path, "%s/dtypes", folder);
    int failed = cod_st_write(path, tensors, DTYPES, NULL, 0) != COD_OK;
    snprintf(path, sizeof path, "%s/metadata", folder);
    failed |= cod_st_write(path, tensors, 1, &(cod_st_text){"format", "p\"t\xc3\xa9"}, 1) != COD_OK;
    snprintf(path, sizeof path, "%s/empty", folder);
    return failed | (cod_st_write(path, NULL, 0, NULL, 0) != COD_OK);
}
