/**
 * @file
 * A fuzz target: one parser of bytes that others may have written.
 *
 * libFuzzer calls LLVMFuzzerTestOneInput(); replay.c, which the ordinary tests are built with, all that is declared
 * here.
 */
#ifndef COD_TESTS_FUZZ_FUZZ_H
#define COD_TESTS_FUZZ_FUZZ_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Ends the program unless the condition holds. */
#define FUZZ_DEMAND(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/** Aborts where the parser does what it must not. @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

/**
 * What the target takes, and how often it has; the last one has no name. A corpus of another format would test nothing.
 */
typedef struct fuzz_kind {
    const char *name;
    size_t taken;
} fuzz_kind;
extern fuzz_kind fuzz_kinds[];

/** Writes the target's sound inputs, where a program makes them. @return whether that failed */
int fuzz_write(const char *folder);
/** Writes "FOLDER/NAME". @return whether that failed */
int fuzz_write_file(const char *folder, const char *name, const void *data, size_t bytes);

/**
 * Whether a parser succeeded. Ends the program where it failed but did not refuse the input: for want of memory, or by
 * a mistake of its own.
 */
int fuzz_taken(cod_status status);

/** Path of a file in memory that holds these bytes until the next call. */
const char *fuzz_file(const void *data, size_t bytes);
/**
 * What readers that a target wraps (WRAPS in CMakeLists.txt) get in the place of any file from now on; borrowed. NULL =
 * files.
 */
void fuzz_memory(const void *data, size_t bytes);
/** fuzz_memory()'s bytes. @param[out] bytes  set where there are any */
const void *fuzz_memory_bytes(size_t *bytes);

/** Path of an empty folder in memory, which goes with the program. */
const char *fuzz_folder(void);

#endif
