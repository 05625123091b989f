/* `codistill bench`: chooses among the benches. */
#include "tools/cmd.h"

#include "tools/bench/bench.h"

#include <stdio.h>
#include <string.h>

int cod_cmd_bench(int argc, char **argv)
{
    static const char help[] =
        "usage: codistill bench NAME [options]\n\n"
        "  step       time of a training step, op by op, compared with the processor's peak\n"
        "  teacher    time that a teacher adds to a training step\n"
        "  upscale    time of a model on a whole picture\n"
        "  niqe       NIQE of pictures, and the time that it takes\n"
        "  loader     training samples made in a second, compared with plain copying\n"
        "  copy       speed of each way to move data to a device, such as a GPU, alone and during training\n"
        "  codec      size, exactness and speed of the exchange's codings, on checkpoints\n"
        "  allreduce  time of bucketed, overlapped averaging and of MPI's blocking allreduce; under mpirun\n"
        "  exchange   cost of exchanging checkpoints between groups, under mpirun; --net trains over slow links\n"
        "  scale      cost of the exchange for many groups and large models, computed by a model\n\n"
        "`codistill bench NAME --help` explains one of them.\n";
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return COD_EXIT_OK;
    }
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return cod_bench_step(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "teacher") == 0)
        return cod_bench_teacher(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "upscale") == 0)
        return cod_bench_upscale(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "niqe") == 0)
        return cod_bench_niqe(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "loader") == 0)
        return cod_bench_loader(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "copy") == 0)
        return cod_bench_copy(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "codec") == 0)
        return cod_bench_codec(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "allreduce") == 0)
        return cod_bench_allreduce_command(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "exchange") == 0)
        return cod_bench_exchange(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "scale") == 0)
        return cod_bench_scale(argc - 1, argv + 1);
    return cod_cmd_usage("bench",
                         argc > 1
                             ? "there is no bench '%s'; there are: step, teacher, upscale, niqe, loader, copy, codec, "
                               "allreduce, exchange, scale"
                             : "a name is missing%s",
                         argc > 1 ? argv[1] : "");
}
