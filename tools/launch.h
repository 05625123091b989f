/**
 * @file
 * Starts this program again under mpirun, so that a user need not, and reads what its ranks say.
 */
#ifndef COD_TOOLS_LAUNCH_H
#define COD_TOOLS_LAUNCH_H

#include "train/config.h"

#include <stdbool.h>

/** How a job ended. */
typedef struct cod_launch_ending {
    int code; /**< of the first rank, or COD_EXIT_FAILED */
    char why
        [4400]; /**< it failed, where no rank has said so: "rank 1 on node7 was killed by signal 9 (Killed)"; or "" */
    bool has_begun; /**< that was after ranks had begun: there may be checkpoints */
    int rank;       /**< whose failure it was; -1 = not known */
} cod_launch_ending;

/**
 * Runs this program with `ranks` ranks, over the nodes of a Slurm allocation where there is one, and the same
 * arguments, and waits; shows what ranks print, and groups' lines on a terminal (tools/display.h). A request to end
 * (tools/stop.h) is repeated to the ranks until each has answered, and the job is killed if one does not within a few
 * seconds, or if the user presses; ranks that have answered may take their time to save.
 */
void cod_launch(const cod_run_config *config, int ranks, int argc, char **argv, cod_launch_ending *ending);

/**
 * For every rank, when MPI has begun: tells the launching process who it is, and answers when it is asked to end.
 */
void cod_launch_tell_rank(int rank);

/** For the first rank: tells its exit code to the launching process, which mpirun's own code may hide. */
void cod_launch_tell_exit_code(int code);
/** For any rank: the job has done all that it should, and is about to be ended without ranks that hang. */
void cod_launch_tell_over(int code);

/** Whether `codistill train` has started this rank, and is told its exit code. */
bool cod_launch_is_told(void);

#endif
