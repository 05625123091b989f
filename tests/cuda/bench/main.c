/* The step benchmark of tools/gpu-check.sh, which tools/bench/gpu_steps.py and gpu_losses.py start. */
#include "bench/bench.h"

#include "core/log.h"
#include "cuda/cuda.h"
#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: bench_cuda_step serve   MODEL OPTIONS N H W C\n"
                           "       bench_cuda_step teacher MODEL OPTIONS N H W C\n"
                           "       bench_cuda_step losses  MODEL OPTIONS N H W C BACKEND TYPE STEPS [FOLDER]\n"
                           "       bench_cuda_step codes   WEIGHTS\n\n"
                           "MODEL and OPTIONS as in a configuration's section model, OPTIONS as one word: \"blocks=16 "
                           "channels=64\"; N H W C is the input's\n"
                           "shape. serve prints a line of JSON when the first steps are done, and one for each line "
                           "read: `step` or `ops`. teacher\n"
                           "prints what a teacher adds to a step; losses those of the first STEPS steps, on BACKEND "
                           "cuda or ref with activations of\n"
                           "TYPE f32 or bf16, and writes initial weights and batches to FOLDER, which must be there. "
                           "serve and teacher run on\n"
                           "cuda in bf16, srresnet with Adam, others by SGD with momentum; losses are with Adam. codes "
                           "prints what coding so many weights for other groups takes.\n";

enum { SHAPE = 4, CASE_END = 4 + SHAPE, LOSSES_END = CASE_END + 3 };

static cod_status number(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    COD_REQUIRE(end != text && *end == '\0' && *value > 0, "'%s' is not a number above 0", text);
    return COD_OK;
}

static cod_status read_case(char **argv, bench_case *which)
{
    int64_t *const sizes[SHAPE] = {&which->input.n, &which->input.h, &which->input.w, &which->input.c};
    *which = (bench_case){.backend = &cod_cuda_backend, .activation = COD_BF16, .model = argv[2], .options = argv[3]};
    which->optimiser = strcmp(which->model, "srresnet") == 0 ? COD_OPT_ADAM : COD_OPT_SGD;
    for (int i = 0; i < SHAPE; i++)
        COD_TRY(number(argv[4 + i], sizes[i]));
    return COD_OK;
}

static cod_status losses(int argc, char **argv, bench_case *which)
{
    const char *backend = argv[CASE_END], *type = argv[CASE_END + 1];
    int64_t steps;
    const bool on_ref = strcmp(backend, "ref") == 0, is_f32 = strcmp(type, "f32") == 0;
    COD_REQUIRE(on_ref || strcmp(backend, "cuda") == 0, "BACKEND is cuda or ref, not '%s'", backend);
    COD_REQUIRE(is_f32 || strcmp(type, "bf16") == 0, "TYPE is f32 or bf16, not '%s'", type);
    COD_TRY(number(argv[CASE_END + 2], &steps));
    which->backend = on_ref ? &cod_ref_backend : &cod_cuda_backend;
    which->activation = is_f32 ? COD_F32 : COD_BF16;
    which->optimiser = COD_OPT_ADAM;
    return bench_losses(which, (int)steps, argc > LOSSES_END ? argv[LOSSES_END] : NULL);
}

static cod_status run(int argc, char **argv)
{
    bench_case which;
    int64_t weights;
    if (strcmp(argv[1], "codes") == 0) {
        COD_TRY(number(argv[2], &weights));
        return bench_codes(&cod_cuda_backend, (size_t)weights);
    }
    COD_TRY(read_case(argv, &which));
    return strcmp(argv[1], "serve") == 0     ? bench_serve(&which)
           : strcmp(argv[1], "teacher") == 0 ? bench_teacher(&which)
                                             : losses(argc, argv, &which);
}

static void warn(void *context, cod_log_level level, const char *line)
{
    (void)context;
    (void)level;
    fprintf(stderr, "bench_cuda_step: warning: %s\n", line);
}

int main(int argc, char **argv)
{
    const bool is_losses = argc > 1 && strcmp(argv[1], "losses") == 0;
    const bool is_other = argc > 1 && (strcmp(argv[1], "serve") == 0 || strcmp(argv[1], "teacher") == 0);
    const bool is_codes = argc == 3 && strcmp(argv[1], "codes") == 0;
    if (!is_codes && !(is_losses && (argc == LOSSES_END || argc == LOSSES_END + 1)) &&
        !(is_other && argc == CASE_END)) {
        fputs(help, stderr);
        return 2;
    }
    cod_log_set_sink(warn, NULL, COD_LOG_WARN); /* a library's refused result is one */
    const cod_status status = run(argc, argv);
    if (status == COD_OK)
        return 0;
    fprintf(stderr, "bench_cuda_step: %s\n", cod_error_message());
    return status == COD_ERR_UNSUPPORTED ? 77 : 1;
}
