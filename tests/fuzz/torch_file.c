/* Files of torch.save(), in both forms, and the networks that are found in them. */
#include "fuzz.h"

#include "infer/foreign.h"
#include "io/torch_file.h"

fuzz_kind fuzz_kinds[] = {{"archives", 0}, {"older files", 0}, {"networks", 0}, {NULL, 0}};

static volatile unsigned fuzz_sink; /**< so that every byte of a tensor is read */

/** Finds networks among a file's tensors, by their own names, and takes all of them for one. */
static void find_networks(const cod_torch_file *file)
{
    cod_arena arena = {0};
    const size_t count = cod_torch_tensor_count(file);
    cod_st_tensor *tensors = calloc(count + 1, sizeof *tensors);
    cod_foreign_network *networks, all;
    const cod_foreign_network *chosen;
    size_t found;
    FUZZ_DEMAND(tensors != NULL);
    for (size_t i = 0; i < count; i++)
        tensors[i] = cod_torch_tensor_at(file, i)->tensor;
    if (fuzz_taken(cod_foreign_find(tensors, count, &arena, &networks, &found))) {
        for (size_t i = 0; i < found; i++)
            FUZZ_DEMAND(networks[i].kind != NULL && networks[i].count <= count);
        (void)fuzz_taken(cod_foreign_choose(networks, found, &chosen));
        fuzz_kinds[2].taken += found > 0;
    }
    FUZZ_DEMAND(cod_foreign_unwrap(tensors, count, &arena, &all) == COD_OK && all.count <= count);
    free(tensors);
    cod_arena_clear(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_torch_file *file = NULL;
    if (!fuzz_taken(cod_torch_open_memory(input, bytes, &file)))
        return 0;
    fuzz_kinds[input[0] != 'P'].taken++;
    unsigned sum = 0;
    for (size_t i = 0; i < cod_torch_tensor_count(file); i++) {
        const cod_st_tensor *tensor = &cod_torch_tensor_at(file, i)->tensor;
        FUZZ_DEMAND(tensor->bytes == cod_st_count(tensor) * cod_st_dtype_bytes(tensor->dtype));
        for (size_t at = 0; at < tensor->bytes; at++)
            sum += ((const unsigned char *)tensor->data)[at];
    }
    fuzz_sink = sum;
    find_networks(file);
    cod_torch_close(file);
    return 0;
}

/** tests/io/golden/torch/write.py does. */
int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
