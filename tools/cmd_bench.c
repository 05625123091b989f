/* `codistill bench`: chooses among the benches. */
#include "tools/cmd.h"

#include "tools/bench/bench.h"
#include "tools/help.h"
#include "tools/print.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} benches[] = {
    {"step", "time of a training step, op by op, compared with the processor's peak", cod_bench_step},
    {"teacher", "time that a teacher adds to a training step", cod_bench_teacher},
    {"upscale", "time of a model on a whole picture", cod_bench_upscale},
    {"niqe", "NIQE of pictures, and the time that it takes", cod_bench_niqe},
    {"loader", "training samples made in a second, compared with plain copying", cod_bench_loader},
    {"copy", "speed of each way to move data to a device, such as a GPU, alone and during training", cod_bench_copy},
    {"codec", "size, exactness and speed of the exchange's codings, on checkpoints", cod_bench_codec},
    {"allreduce", "time of bucketed, overlapped averaging and of MPI's blocking allreduce; under mpirun",
     cod_bench_allreduce_command},
    {"exchange", "cost of exchanging checkpoints between groups, under mpirun; --net trains over slow links",
     cod_bench_exchange},
    {"scale", "cost of the exchange for many groups and large models, computed by a model", cod_bench_scale},
};
enum { BENCHES = sizeof benches / sizeof benches[0] };

int cod_cmd_bench(int argc, char **argv)
{
    char name[32], names[256] = "";
    if (argc < 2)
        return cod_cmd_usage("bench", "a name is missing");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        char help[2048] = "usage: codistill bench NAME [options]\n\n";
        for (size_t i = 0, used = strlen(help); i < BENCHES; i++)
            used += (size_t)snprintf(help + used, sizeof help - used, "  %s\t%s\n", benches[i].name, benches[i].help);
        cod_help_print(stdout, help);
        cod_help_print(stdout, "\n`codistill bench NAME --help` explains one of them.\n");
        return COD_EXIT_OK;
    }
    for (size_t i = 0, used = 0; i < BENCHES; i++) {
        if (strcmp(argv[1], benches[i].name) == 0) {
            snprintf(name, sizeof name, "bench %s", argv[1]);
            argv[1] = name; /* in messages */
            return benches[i].run(argc - 1, argv + 1);
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", benches[i].name);
    }
    return cod_cmd_usage("bench", "there is no bench '%s'; there are: %s", argv[1], names);
}
