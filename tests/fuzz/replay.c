/* Feeds a target every file of some folders and archives, each whole, cut off at up to CUTS lengths, and mutated:
   test_fuzz_NAME CUTS FOLDER_OR_ARCHIVE …; `test_fuzz_NAME --write FOLDER` makes the sound inputs anew. */
#include "fuzz.h"

#include "core/rng.h"

#include <dirent.h>
#include <sys/resource.h>
#include <zlib.h>

enum { MOST_BYTES = 1 << 16, MOST_INPUTS = 1024, MUTATIONS = 4000 };

/** No input of these sizes is worth so much memory. */
enum { MEMORY_BYTES = 1 << 30 };

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=512";
}
#endif

typedef struct known_input {
    char path[512];
    uint8_t *data;
    size_t bytes;
} known_input;
static known_input inputs[MOST_INPUTS];
static size_t input_count;

/** Room for an input's bytes; those past MOST_BYTES are not tried. */
static known_input *add(const char *place, const char *name, size_t bytes)
{
    FUZZ_DEMAND(input_count < MOST_INPUTS);
    known_input *added = &inputs[input_count++];
    const int length = snprintf(added->path, sizeof added->path, "%s/%s", place, name);
    FUZZ_DEMAND(length >= 0 && (size_t)length < sizeof added->path);
    added->bytes = bytes < MOST_BYTES ? bytes : MOST_BYTES;
    added->data = malloc(added->bytes + 1);
    FUZZ_DEMAND(added->data != NULL);
    return added;
}

/** The files of a tar archive as corpus.py writes it: POSIX headers of 512 bytes, names of at most 99. */
static int find_packed(const char *archive)
{
    enum { BLOCK = 512, SIZE_AT = 124, SIZE_DIGITS = 12, TYPE_AT = 156 };
    char head[BLOCK], digits[SIZE_DIGITS + 1] = {0};
    gzFile file = gzopen(archive, "rb");
    int sound = file != NULL;
    while ((sound = sound && gzread(file, head, BLOCK) == BLOCK) && head[0] != '\0') {
        memcpy(digits, head + SIZE_AT, SIZE_DIGITS);
        const long bytes = strtol(digits, NULL, 8), padding = (BLOCK - bytes % BLOCK) % BLOCK;
        FUZZ_DEMAND(head[TYPE_AT] == '0' && head[99] == '\0');
        const known_input *added = add(archive, head, (size_t)bytes);
        const long rest = bytes - (long)added->bytes + padding;
        sound = gzread(file, added->data, (unsigned)added->bytes) == (int)added->bytes &&
                (rest == 0 || gzseek(file, rest, SEEK_CUR) >= 0);
    }
    if (!sound)
        fprintf(stderr, "cannot read '%s'\n", archive);
    if (file != NULL)
        gzclose(file);
    return !sound;
}

static void read_file(const char *folder, const char *name)
{
    known_input *added = add(folder, name, MOST_BYTES);
    FILE *file = fopen(added->path, "rb");
    FUZZ_DEMAND(file != NULL);
    added->bytes = fread(added->data, 1, MOST_BYTES, file);
    fclose(file);
}

static int find(const char *folder)
{
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return find_packed(folder);
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        if (entry->d_type == DT_REG)
            read_file(folder, entry->d_name);
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

static void replay(const known_input *in, size_t cuts, size_t mutations, uint32_t number)
{
    static uint8_t changed[MOST_BYTES];
    fprintf(stderr, "%s\n", in->path); /* the last one said is the one that did it */
    run(in->data, in->bytes);
    for (size_t cut = 0; cut < cuts && cut < in->bytes; cut++)
        run(in->data, in->bytes <= cuts ? cut : cut * in->bytes / cuts);
    for (size_t m = 0; m < mutations; m++) {
        cod_rng random = cod_rng_open(1, 0, 0, m, COD_RNG_TEST, number);
        memcpy(changed, in->data, in->bytes);
        run(changed, mutate(&random, changed, in->bytes));
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const known_input *)a)->path, ((const known_input *)b)->path);
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
    qsort(inputs, input_count, sizeof inputs[0], by_path);
    for (size_t i = 0; i < input_count; i++)
        replay(&inputs[i], strtoul(arguments[1], NULL, 10), (MUTATIONS + input_count - 1) / input_count, (uint32_t)i);
    printf("%zu inputs, each cut off and mutated; taken:", input_count);
    for (const fuzz_kind *kind = fuzz_kinds; kind->name != NULL; kind++) {
        printf(" %zu %s", kind->taken, kind->name);
        failed |= kind->taken == 0;
    }
    printf("\n");
    return failed || input_count == 0;
}
