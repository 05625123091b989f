/**
 * @file
 * Averages in host memory, the simple way: every rank has the values of all, and adds them up in the order of the
 * ranks, inside nodes first.
 */
#ifndef COD_TESTS_COMM_ORDERED_AVERAGE_H
#define COD_TESTS_COMM_ORDERED_AVERAGE_H

#include "comm/group.h"

typedef struct ordered_average {
    cod_collective collective; /**< first */
    cod_group *group;
    const int *node_of; /**< [group size] by rank */
} ordered_average;

/**
 * A collective of `ordered`, of which all arguments are borrowed. Its averages are there when average_start() returns.
 */
cod_collective *ordered_average_init(ordered_average *ordered, cod_group *group, const int *node_of);

#endif
