/* Rank 0 ends; the others never do. Prints "bounded" when finalize gave up in time, then ends the job as tools do. */
#include "comm/comm.h"
#include "core/trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    cod_comm *comm = NULL;
    if (cod_comm_init(NULL, &comm) != COD_OK)
        return 1;
    cod_comm_configure(comm, &(cod_comm_options){.teardown_timeout_s = 0.5, .progress_interval_ms = 1});
    if (cod_comm_rank(comm) > 0)
        for (;;)
            pause();
    const double begin = cod_clock_s();
    const cod_status status = cod_comm_finalize(comm);
    const double took = cod_clock_s() - begin;
    if (status == COD_ERR_INTERRUPTED && took >= 0.5 &&
        strstr(cod_error_message(), "cluster.teardown_timeout_s") != NULL) {
        printf("bounded: %s\n", cod_error_message());
        fflush(stdout);
    }
    cod_comm_abort(3);
}
