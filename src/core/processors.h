/**
 * @file
 * Sets of processors (hardware threads), the cores they make up, and how many of them this process may use.
 */
#ifndef COD_CORE_PROCESSORS_H
#define COD_CORE_PROCESSORS_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COD_PROCESSORS_MAX = 8192 };

/** Zeroed = empty. */
typedef struct cod_processors {
    uint64_t bits[COD_PROCESSORS_MAX / 64];
} cod_processors;

/** Where the kernel describes the processors. */
#define COD_TOPOLOGY_FOLDER "/sys/devices/system/cpu"

void cod_processors_add(cod_processors *set, int processor);
bool cod_processors_have(const cod_processors *set, int processor);
int cod_processors_count(const cod_processors *set);
bool cod_processors_equal(const cod_processors *a, const cod_processors *b);
bool cod_processors_overlap(const cod_processors *a, const cod_processors *b);

/** The kernel's notation, such as "0-3,8". A set that does not fit into `bytes` ends in "...". */
void cod_processors_format(const cod_processors *set, char *text, size_t bytes);
/**
 * Reads that notation up to the first character that does not belong to it. @return whether it was a set that is not
 * empty
 */
bool cod_processors_parse(const char *text, cod_processors *set);

/** "AMD EPYC 9R14, 2 processors": what the system calls this machine's processors, and `count` of them. */
void cod_processors_describe(int count, char *text, size_t bytes);

/** The processors on which the calling thread may run; empty if the system does not say. */
cod_processors cod_processors_allowed(void);
/**
 * Confines the calling thread, and threads that it starts later, to the set. @return COD_ERR_IO when the system refuses
 */
COD_MUST_CHECK cod_status cod_processors_bind(const cod_processors *set);

/** Number of cores that the processors belong to. @param folder COD_TOPOLOGY_FOLDER; other ones are for tests */
int cod_processors_cores(const cod_processors *set, const char *folder);

/**
 * One of `parts` disjoint parts of a set: whole cores, in one package if possible; the numbers of cores in two parts
 * differ by one at most. If there are fewer cores than parts, the hardware threads of the cores are divided.
 *
 * @return whether there are enough; if not, *out is the whole set
 */
bool cod_processors_part(const cod_processors *set, int part, int parts, const char *folder, cod_processors *out);

/** Processor time that the control groups of this process grant, in processors, rounded up; INT_MAX = no limit. */
int cod_processors_quota(void);

/**
 * Number of threads with which this process computes fastest: one for each core that it may use, within its quota; at
 * least 1.
 */
int cod_usable_threads(void);

#endif
