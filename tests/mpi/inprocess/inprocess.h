/**
 * @file
 * Runs a job whose ranks are threads of this process.
 */
#ifndef COD_TESTS_INPROCESS_H
#define COD_TESTS_INPROCESS_H

/**
 * Calls rank_main(context) on `size` new threads, each a rank of one job, and waits for all. Threads that a rank
 * creates belong to that rank. One job at a time; another may follow.
 *
 * @param ranks_per_node  so many consecutive ranks report the same processor name
 * @return the number of ranks whose rank_main() did not return 0
 */
int cod_inprocess_run(int size, int ranks_per_node, int (*rank_main)(void *context), void *context);

/** What windows say of their copies: MPI_WIN_UNIFIED unless a test sets it, before a job. They have one. */
extern int cod_inprocess_window_model;

#endif
