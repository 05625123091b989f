/* Trains a configuration from C: train CONFIG.yaml [key.path=value ...], alone or under mpirun. */
#include "train/train.h"
#include "comm/comm.h"
#include "core/backend.h"
#include "cpu/cpu.h"
#include "distill/codistill.h"
#include "train/recipe.h"

#include <stdio.h>

static void report(void *context, const cod_train_progress *progress)
{
    (void)context;
    printf("group %d, step %lld of %lld: loss %.4f\n", progress->group, (long long)progress->line->step,
           (long long)progress->steps, progress->line->loss);
}

/** What a configuration may name: `cluster.device`, `train.recipe` and `train.strategy`. */
static cod_status register_parts(void)
{
    cod_recipe_register_supervised();
    cod_strategies_register_basic();
    cod_strategy_register_codistill();
    return cod_backend_register(&cod_cpu_backend);
}

static cod_status train(cod_comm *comm, const char *path, const char *const *overrides, size_t count)
{
    cod_run_config config;
    cod_train_ending ending;
    COD_TRY(cod_run_config_load_to_train(path, overrides, count, &config));
    cod_comm_configure(comm, &config.cluster);
    const cod_train_request request = {.config = &config, .comm = comm, .report = report, .version = "example"};
    const cod_status status = cod_train_run(&request, &ending);
    if (status == COD_OK && cod_comm_rank(comm) == 0)
        printf("%s: %s/final.safetensors\n", ending == COD_TRAIN_FINISHED ? "finished" : "stopped",
               cod_run_config_folder(&config));
    cod_run_config_clear(&config);
    return status;
}

int main(int argc, char **argv)
{
    cod_comm *comm = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: train CONFIG.yaml [key.path=value ...]\n");
        return 2;
    }
    cod_status status = register_parts();
    COD_THEN(status, cod_comm_init(NULL, &comm));
    COD_THEN(status, train(comm, argv[1], (const char *const *)argv + 2, (size_t)argc - 2));
    COD_THEN(status, cod_comm_finalize(comm));
    if (status != COD_OK)
        fprintf(stderr, "train: %s\n", cod_error_message());
    return status == COD_OK ? 0 : 1;
}
