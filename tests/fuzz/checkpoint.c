/*
 * Checkpoints, and predictions, which are kept like them.
 *
 * An input is a byte and a safetensors file. Byte 0: bit 0 the checksum is put right first, so that what lies behind it
 * is reached.
 */
#include "fuzz.h"

#include "core/hash.h"
#include "train/checkpoint.h"
#include "train/predictions.h"

enum { SEAL = 1, STEP = 7 };

fuzz_kind fuzz_kinds[] = {{"checkpoints", 0}, {"predictions", 0}, {NULL, 0}};

/** The checksum of train/checkpoint.c. @return where its text lies in the file; NULL = there is none */
static const char *checksum(const cod_st_file *file, char out[17])
{
    static const char key[] = "xxh3";
    uint64_t sum = 0;
    for (size_t i = 0; i < cod_st_tensor_count(file); i++) {
        const cod_st_tensor *t = cod_st_tensor_at(file, i);
        sum += cod_hash(t->data, t->bytes, cod_hash(t->name, strlen(t->name), t->dtype));
    }
    for (size_t i = 0; i < cod_st_metadata_count(file); i++) {
        const cod_st_text *t = cod_st_metadata_at(file, i);
        if (strcmp(t->key, key) != 0)
            sum += cod_hash(t->value, strlen(t->value), cod_hash(t->key, strlen(t->key), 1));
    }
    snprintf(out, 17, "%016llx", (unsigned long long)sum);
    return cod_st_metadata(file, key);
}

static void put_right(uint8_t *data, size_t bytes)
{
    char right[17];
    cod_st_file *file = NULL;
    if (cod_st_open_memory(data, bytes, &file) != COD_OK)
        return;
    const char *written = checksum(file, right);
    uint8_t *at = written != NULL && strlen(written) == 16 ? memmem(data, bytes, written, 16) : NULL;
    if (at != NULL)
        memcpy(at, right, 16);
    cod_st_close(file);
}

static void read_checkpoint(void)
{
    cod_st_file *file = NULL;
    double number;
    int64_t whole;
    if (!fuzz_taken(cod_checkpoint_open("folder", STEP, "part", &file)))
        return;
    fuzz_kinds[0].taken++;
    for (size_t i = 0; i < cod_st_tensor_count(file); i++) {
        const cod_st_tensor *t = cod_st_tensor_at(file, i);
        void *copy = malloc(t->bytes + 1);
        FUZZ_DEMAND(copy != NULL && cod_checkpoint_read(file, t->name, copy, t->bytes) == COD_OK);
        FUZZ_DEMAND(cod_checkpoint_read(file, t->name, copy, t->bytes + 1) == COD_ERR_FORMAT);
        free(copy);
    }
    for (size_t i = 0; i < cod_st_metadata_count(file); i++) {
        const char *key = cod_st_metadata_at(file, i)->key;
        const bool is_number = fuzz_taken(cod_checkpoint_number(file, key, &number));
        if (fuzz_taken(cod_checkpoint_whole(file, key, 0, &whole)))
            FUZZ_DEMAND(is_number && whole >= 0 && (double)whole == number);
    }
    cod_st_close(file);
}

static void read_predictions(void)
{
    cod_predictions predictions;
    if (!fuzz_taken(cod_predictions_read("folder", COD_SPLIT_VAL, 0, STEP, &predictions)))
        return;
    fuzz_kinds[1].taken++;
    volatile float seen = 0;
    for (size_t i = 0; i < predictions.count; i++)
        seen += predictions.predicted[i] + predictions.confidence[i] + predictions.truth[i];
    cod_predictions_clear(&predictions);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes < 1)
        return 0;
    uint8_t *data = malloc(bytes - 1 + (bytes == 1)); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(data != NULL);
    memcpy(data, input + 1, bytes - 1);
    if ((input[0] & SEAL) != 0)
        put_right(data, bytes - 1);
    fuzz_memory(data, bytes - 1);
    read_checkpoint();
    read_predictions();
    fuzz_memory(NULL, 0);
    free(data);
    return 0;
}

/** Puts a checkpoint's file behind the first byte of an input. */
static int write_input(const char *folder, const char *name, cod_checkpoint *checkpoint)
{
    static unsigned char input[1 << 16] = {SEAL};
    char path[4096];
    int failed = cod_checkpoint_write(checkpoint, fuzz_folder(), STEP, name) != COD_OK;
    snprintf(path, sizeof path, "%s/step-%09d/%s.safetensors", fuzz_folder(), STEP, name);
    FILE *file = fopen(path, "rb");
    const size_t bytes = file != NULL ? fread(input + 1, 1, sizeof input - 1, file) : 0;
    failed |= file == NULL || fclose(file) != 0 || fuzz_write_file(folder, name, input, bytes + 1);
    cod_checkpoint_clear(checkpoint);
    return failed;
}

int fuzz_write(const char *folder)
{
    static const float values[] = {1, 2, 0, 0.5f, 1, 2, 3, 4};
    cod_checkpoint run = {0}, predictions = {0};
    int failed = cod_checkpoint_add_f32(&run, "values", values, 8) != COD_OK ||
                 cod_checkpoint_add_bytes(&run, "exchange", "abc", 3) != COD_OK ||
                 cod_checkpoint_add_number(&run, "step", 7) != COD_OK ||
                 cod_checkpoint_add_text(&run, "strategy", "single") != COD_OK ||
                 cod_checkpoint_add_f32(&predictions, "predicted", values, 2) != COD_OK ||
                 cod_checkpoint_add_f32(&predictions, "confidence", values + 2, 2) != COD_OK ||
                 cod_checkpoint_add_f32(&predictions, "truth", values + 4, 2) != COD_OK;
    failed |= write_input(folder, "run", &run);
    return failed | write_input(folder, "predictions", &predictions);
}
