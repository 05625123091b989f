/**
 * @file
 * Memory that all ranks of a group share, where they run on one node.
 *
 * Who writes and who reads what when is the callers' to agree on: what one rank wrote before a reduction of the group, another may
 * read after it.
 */
#ifndef COD_COMM_GROUP_MEMORY_H
#define COD_COMM_GROUP_MEMORY_H

#include "comm/group.h"

typedef struct cod_group_memory cod_group_memory;

/**
 * Collective on `group`, with equal arguments.
 *
 * @param bytes     of all; zeroed, and taken from the system as pages are first written
 * @param[out] out  new; end it with cod_group_memory_destroy(). NULL where the group's ranks run on several nodes, or where the
 *                  system does not let one rank open another's memory (as in containers of their own): on all ranks alike
 */
COD_MUST_CHECK cod_status cod_group_memory_create(cod_group *group, size_t bytes, cod_group_memory **out);
/** Local: the memory lives until its last rank has destroyed it. NULL does nothing. */
void cod_group_memory_destroy(cod_group_memory *memory);

/** [bytes] at a page's start. */
void *cod_group_memory_data(const cod_group_memory *memory);

#endif
