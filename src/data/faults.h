/**
 * @file
 * What is wrong with items of the data, one by one: kept until all have been looked at, so that one message says it.
 */
#ifndef COD_DATA_FAULTS_H
#define COD_DATA_FAULTS_H

#include "core/status.h"

#include <stddef.h>

enum { COD_FAULTS_NAMED = 5, COD_FAULTS_TEXT = 2048 };

/** Zeroed = none. */
typedef struct cod_faults {
    size_t count;
    size_t kept, capacity;
    char **texts; /**< [kept]; fewer than `count` where memory was short */
} cod_faults;

/** Keeps one; it names the item and says what would be right, such as "a.png: the file is empty". */
void cod_faults_add(cod_faults *faults, const char *fmt, ...) COD_PRINTF(2, 3);

/** The first few, with `between` between them, such as "; ", and how many there are more: for a message. */
const char *cod_faults_first(const cod_faults *faults, const char *between, char text[COD_FAULTS_TEXT]);

/**
 * Warns that items were left out: how many, of how many, and the first few. Of more than COD_FAULTS_NAMED a file lists
 * all; where there are fewer, it is removed, as one of an earlier run.
 *
 * @param items  what they are, such as "pictures"
 * @param path   of the file; NULL = none is written
 */
void cod_faults_report(const cod_faults *faults, size_t of, const char *items, const char *path);

void cod_faults_clear(cod_faults *faults);

#endif
