/**
 * @file
 * Starts this program again under mpirun, so that a user need not, and reads what its ranks say.
 */
#ifndef COD_TOOLS_LAUNCH_H
#define COD_TOOLS_LAUNCH_H

#include "train/config.h"

/** How a job ended. */
typedef struct cod_launch_ending {
    int code;        /**< of the first rank, or COD_EXIT_FAILED */
    int killed_rank; /**< a rank that died of a signal without a word, or -1 */
    char killed
        [160]; /**< where and how: "rank 1 on node7 was killed by signal 9 (Killed)"; or mpirun itself; "" = nobody */
} cod_launch_ending;

/**
 * Runs this program with `ranks` ranks, over the nodes of a Slurm allocation where there is one, and the same
 * arguments, and waits; shows what ranks print, and groups' lines on a terminal (tools/display.h). Signals that ask it
 * to stop are passed on, and ranks are given a minute to save.
 */
void cod_launch(const cod_run_config *config, int ranks, int argc, char **argv, cod_launch_ending *ending);

/**
 * For every rank: tells who it is to the launching process, whose launcher may name a dead rank by its process only.
 */
void cod_launch_tell_rank(int rank);

/** For the first rank: tells its exit code to the launching process, which mpirun's own code may hide. */
void cod_launch_tell_exit_code(int code);

#endif
