/**
 * @file
 * What `comm` declares, for a process that is a group of one rank and has no MPI: a program links this module in the
 * place of `comm`. Groups are as cod_group_create_part() makes them: this process is one of several, and the ranks of
 * the others are numbers only.
 */
#ifndef COD_ALONE_INTERNAL_H
#define COD_ALONE_INTERNAL_H

#include "comm/comm.h"
#include "comm/group.h"
#include "comm/group_memory.h"
#include "comm/window.h"

struct cod_group {
    cod_comm *comm;
    int index, count; /**< which of how many groups */
    int *first;       /**< [count + 1] world rank of each group's first rank; NULL = the world, which is one rank */
    int *ranks;       /**< [first[count]] 0, 1, 2, … */
};

struct cod_comm {
    cod_group world;
    char node[256]; /**< name of this host */
};

#endif
