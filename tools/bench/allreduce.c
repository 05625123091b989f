/* `codistill bench allreduce`. */
#include "comm/bench.h"
#include "tools/arguments.h"
#include "tools/bench/bench.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_status measure(cod_comm *comm, double megabytes, int buckets)
{
    const int size = cod_comm_size(comm);
    cod_group *group = NULL;
    cod_bench_allreduce_result result;
    COD_TRY(cod_group_create(comm, &size, 1, &group));
    const cod_status status = cod_bench_allreduce(group, (size_t)(megabytes * 1e6), buckets, 51, &result);
    cod_group_destroy(group);
    if (status == COD_OK && cod_comm_rank(comm) == 0)
        printf("%s, %d ranks, %.1f MB in %d buckets\nblocking %.2f ms, bucketed %.2f ms, ratio %.2f; a computation of "
               "%.2f ms with it %.2f ms\n",
               cod_comm_library(comm), size, megabytes, buckets, 1e3 * result.blocking_s, 1e3 * result.bucketed_s,
               result.ratio, 1e3 * result.compute_s, 1e3 * result.overlapped_s);
    return status;
}

static const char help[] =
    "usage: mpirun -n RANKS codistill bench allreduce [MEGABYTES [BUCKETS]]\n\n"
    "Times the averaging of gradients over all ranks and prints the median of 51 rounds. Without arguments it averages "
    "6.2 MB, the gradients of SRResNet, in 6 buckets.\n";

int cod_bench_allreduce_command(int argc, char **argv)
{
    double megabytes = 6.2;
    long buckets = 6;
    char *end = "";
    const int wrong = cod_arguments_parse(argc, argv, help, NULL, 0, NULL, NULL);
    if (wrong >= 0)
        return wrong;
    argv += optind - 1;
    argc -= optind - 1;
    if (argc > 1)
        megabytes = strtod(argv[1], &end);
    if (*end != '\0' || !(megabytes > 0 && megabytes < 1e5))
        return cod_cmd_usage("bench allreduce", "MEGABYTES: '%s' is not a number above 0 and below 1e5", argv[1]);
    end = "";
    if (argc > 2)
        buckets = strtol(argv[2], &end, 10);
    if (*end != '\0' || buckets < 1 || buckets > 256)
        return cod_cmd_usage("bench allreduce", "BUCKETS: '%s' is not a whole number from 1 to 256", argv[2]);
    if (argc > 3)
        return cod_cmd_usage("bench allreduce", "there is no third argument, but got '%s'", argv[3]);
    cod_comm *comm = NULL;
    cod_status status = cod_comm_init(NULL, &comm);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    status = measure(comm, megabytes, (int)buckets);
    const int code = cod_cmd_end(status);
    return cod_comm_finalize(comm) == COD_OK ? code : COD_EXIT_FAILED;
}
