/* `codistill bench`: chooses among the benches. */
#include "tools/cmd.h"

#include "tools/bench/bench.h"
#include "tools/complete.h"
#include "tools/help.h"
#include "tools/print.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
    int operands; /**< COD_WORDS_FILES and so on */
} benches[] = {
    {"step", "time of a training step, op by op, compared with the processor's peak", cod_bench_step, 0},
    {"tune", "chooses anew among the implementations of a step's convolutions, and shows why", cod_bench_tune, 0},
    {"teacher", "time that a teacher adds to a training step", cod_bench_teacher, 0},
    {"upscale", "time of a model on a whole picture", cod_bench_upscale, COD_WORDS_MODELS | COD_WORDS_BICUBIC},
    {"niqe", "NIQE of pictures, and the time that it takes", cod_bench_niqe, COD_WORDS_FILES},
    {"loader", "training samples made in a second, compared with plain copying", cod_bench_loader, COD_WORDS_FILES},
    {"copy", "speed of each way to move data to a device, such as a GPU, alone and during training", cod_bench_copy, 0},
    {"codec", "size, exactness and speed of the exchange's codings, on checkpoints", cod_bench_codec, COD_WORDS_FILES},
    {"allreduce", "time of bucketed, overlapped averaging and of MPI's blocking allreduce; under mpirun",
     cod_bench_allreduce_command, 0},
    {"exchange", "cost of exchanging checkpoints between groups, under mpirun; --net trains over slow links",
     cod_bench_exchange, 0},
    {"scale", "cost of the exchange for many groups and large models, computed by a model", cod_bench_scale, 0},
};
enum { BENCHES = sizeof benches / sizeof benches[0] };

/** What stands behind `bench`: a name, or what its bench says. */
static int complete(int count, char **words)
{
    char name[32];
    for (size_t i = 0; i < BENCHES && count > 1; i++) {
        snprintf(name, sizeof name, "bench %s", benches[i].name);
        if (strcmp(words[0], benches[i].name) == 0)
            return cod_complete_command(benches[i].run, name, benches[i].operands, count - 1, words + 1);
    }
    for (size_t i = 0; i < BENCHES && count == 1; i++)
        cod_complete_word(benches[i].name, benches[i].help);
    cod_complete_word("--help", "list the benches");
    return COD_EXIT_OK;
}

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
    if (strcmp(argv[1], COD_COMPLETE_WORD) == 0)
        return complete(argc - 2, argv + 2);
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
