/* Feeds a target every file of some folders, each whole, cut off at up to CUTS lengths, and mutated: test_fuzz_NAME
 * CUTS FOLDER …;
   `test_fuzz_NAME --write FOLDER` makes the sound inputs anew. */
#include "fuzz.h"

#include "core/rng.h"

#include <dirent.h>
#include <sys/resource.h>

enum { MOST_BYTES = 1 << 16, MOST_FILES = 1024, MUTATIONS = 4000 };

/** No input of these sizes is worth so much memory. */
enum { MEMORY_BYTES = 1 << 30 };

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=512";
}
#endif

static char paths[MOST_FILES][512];
static size_t path_count;

static int find(const char *folder)
{
    DIR *directory = opendir(folder);
    if (directory == NULL) {
        fprintf(stderr, "cannot read '%s'\n", folder);
        return 1;
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        if (entry->d_type == DT_REG && path_count < MOST_FILES)
            snprintf(paths[path_count++], sizeof paths[0], "%s/%s", folder, entry->d_name);
    closedir(directory);
    return 0;
}

/**
 * Changes some bytes, moves some, and cuts or doubles some: as a fuzzer does, but the same ones in every run.
 *
 * @return bytes
 */
static size_t mutate(cod_rng *random, uint8_t *input, size_t bytes)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '"', '-', '9'};
    for (uint32_t count = 1 + cod_rng_below(random, 4); count > 0 && bytes > 0; count--) {
        const size_t at = cod_rng_below(random, (uint32_t)bytes), from = cod_rng_below(random, (uint32_t)bytes);
        size_t length = 1 + cod_rng_below(random, 16);
        switch (cod_rng_below(random, 4)) {
        case 0:
            input[at] ^= (uint8_t)(1u << cod_rng_below(random, 8));
            break;
        case 1:
            input[at] = telling[cod_rng_below(random, sizeof telling)];
            break;
        case 2:
            length = length < bytes - at ? length : bytes - at;
            length = length < bytes - from ? length : bytes - from;
            memmove(input + at, input + from, length);
            break;
        default:
            length = length < bytes - at ? length : bytes - at;
            if (cod_rng_below(random, 2) == 0 && bytes + length <= MOST_BYTES) {
                memmove(input + at + length, input + at, bytes - at);
                bytes += length;
            } else {
                memmove(input + at, input + at + length, bytes - at - length);
                bytes -= length;
            }
        }
    }
    return bytes;
}

/** Of the exact length, so that a sanitizer sees what is read behind. */
static void run(const uint8_t *input, size_t bytes)
{
    uint8_t *exact = malloc(bytes + (bytes == 0));
    FUZZ_DEMAND(exact != NULL);
    memcpy(exact, input, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void replay(const char *path, size_t cuts, size_t mutations, uint32_t number)
{
    static uint8_t sound[MOST_BYTES], changed[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    FUZZ_DEMAND(file != NULL);
    const size_t bytes = fread(sound, 1, sizeof sound, file);
    fclose(file);
    fprintf(stderr, "%s\n", path); /* the last one said is the one that did it */
    run(sound, bytes);
    for (size_t cut = 0; cut < cuts && cut < bytes; cut++)
        run(sound, bytes <= cuts ? cut : cut * bytes / cuts);
    for (size_t m = 0; m < mutations; m++) {
        cod_rng random = cod_rng_open(1, 0, 0, m, COD_RNG_TEST, number);
        memcpy(changed, sound, bytes);
        run(changed, mutate(&random, changed, bytes));
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

int main(int count, char **arguments)
{
    int failed = count < 3;
    if (count == 3 && strcmp(arguments[1], "--write") == 0)
        return fuzz_write(arguments[2]) != 0;
#ifndef __SANITIZE_ADDRESS__
    setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_BYTES, MEMORY_BYTES});
#endif
    for (int i = 2; i < count; i++)
        failed |= find(arguments[i]);
    qsort(paths, path_count, sizeof paths[0], by_text);
    for (size_t i = 0; i < path_count; i++)
        replay(paths[i], strtoul(arguments[1], NULL, 10), (MUTATIONS + path_count - 1) / path_count, (uint32_t)i);
    printf("%zu inputs, each cut off and mutated; taken:", path_count);
    for (const fuzz_kind *kind = fuzz_kinds; kind->name != NULL; kind++) {
        printf(" %zu %s", kind->taken, kind->name);
        failed |= kind->taken == 0;
    }
    printf("\n");
    return failed || path_count == 0;
}
