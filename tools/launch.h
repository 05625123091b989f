/**
 * @file
 * Starting this program again under mpirun, so that a user need not.
 */
#ifndef COD_TOOLS_LAUNCH_H
#define COD_TOOLS_LAUNCH_H

/**
 * Runs this program with `ranks` ranks and the same arguments, and waits. Signals that ask it to stop are passed on, and
 * ranks are given a minute to save. @return the exit code of the first rank
 */
int cod_launch(int ranks, int argc, char **argv);

/** For the first rank: leaves its exit code for the launching process, which mpirun's own code may hide. */
void cod_launch_leave_exit_code(int code);

#endif
