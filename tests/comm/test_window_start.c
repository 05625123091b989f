/* Whom a rank reads when a window begins. MPI's get is wrapped by the linker. */
#include "comm/job.h"

#include "comm/window.h"

#include <mpi.h>

enum { MOST_RANKS = 16, BYTES = 1000 };

static int gets[MOST_RANKS];

int __real_MPI_Rget(void *to, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count,
                    MPI_Datatype from_type, MPI_Win window, MPI_Request *request);
int __wrap_MPI_Rget(void *to, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count,
                    MPI_Datatype from_type, MPI_Win window, MPI_Request *request);

int __wrap_MPI_Rget(void *to, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count,
                    MPI_Datatype from_type, MPI_Win window, MPI_Request *request)
{
    gets[from]++;
    return __real_MPI_Rget(to, count, type, from, at, from_count, from_type, window, request);
}

static int gets_of_all(void)
{
    int all = 0;
    for (int r = 0; r < MOST_RANKS; r++)
        all += gets[r];
    return all;
}

/**
 * One get from each rank that it said it would read, itself aside, and none from others: connections are dear among
 * many ranks.
 */
TEST(only_sources_are_read_at_the_start)
{
    cod_window *window = NULL;
    const int rank = cod_comm_rank(job), size = cod_comm_size(job), next = (rank + 1) % size;
    const int sources[] = {rank, next};
    for (int r = 0; r < MOST_RANKS; r++)
        gets[r] = 0;
    check_ok(cod_window_create(job, BYTES, sources, 2, &window));
    check_all(gets[next] == 1 && gets_of_all() == 1);
    check_ok(cod_window_destroy(window));
    check_ok(cod_window_create(job, BYTES, sources, 0, &window));
    check_all(gets_of_all() == 1);
    check_ok(cod_window_destroy(window));
    check_ok(cod_window_create(job, BYTES, NULL, 0, &window));
    check_all(gets_of_all() == size);
    check_ok(cod_window_destroy(window));
}

TEST_GROUP(job_setup, job_teardown)
