/*
 * A rank of a run of the recipe `toy`: toy_job CONFIG.yaml [key.path=value ...], alone or under mpirun, as `codistill
 * train`.
 *
 * The backend `late` is there too, around `ref`. TOY_KILL_AT=S: rank 0 kills itself once its line of metrics of step S
 * is written. TOY_CROSSINGS=1: group 0 says with each line of metrics how often its device was met so far.
 */
#include "comm/comm.h"
#include "core/log.h"
#include "cpu/cpu.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/patience.h"
#include "tools/strategies.h"
#include "toy_recipe.h"
#include "train/train.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void print_line(void *context, cod_log_level level, const char *line)
{
    (void)context;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static cod_status register_all(void)
{
    cod_log_set_sink(print_line, NULL, COD_LOG_INFO);
    COD_TRY(cod_backend_register(&cod_cpu_backend));
    COD_TRY(cod_backend_register(&cod_ref_backend));
    COD_TRY(cod_backend_register(cod_late_wrap(&cod_ref_backend)));
    cod_recipe_register_supervised();
    toy_recipe_register();
    cod_strategies_register_all();
    return COD_OK;
}

static void follow(void *context, const cod_train_progress *progress)
{
    const int64_t *step = context;
    if (progress->group == 0 && getenv("TOY_CROSSINGS") != NULL)
        fprintf(stderr, "crossings %lld %zu\n", (long long)progress->line->step, cod_late_crossings());
    if (progress->group == 0 && progress->line->step == *step)
        raise(SIGKILL);
}

/** Says what failed, as the rank that knows, and ends the job. */
static _Noreturn void end_job(cod_status status)
{
    if (status == COD_ERR_PEER || cod_error_said_elsewhere())
        sleep(COD_TEST_PATIENCE_S); /* that rank ends the job */
    fprintf(stderr, "toy_job: %s\n", cod_error_message());
    const int code = status == COD_ERR_ARGUMENT ? 2 : 1;
    if (cod_comm_launched_ranks() == 0)
        _exit(code);
    cod_comm_abort(code);
}

/** What a device would not have forgiven fails the run. */
static cod_status check_late(void)
{
    char first[512];
    const size_t count = cod_late_violations(first, sizeof first);
    return count == 0 ? COD_OK : cod_fail(COD_ERR_BACKEND, "%zu violations on 'late'; the first: %s", count, first);
}

static cod_status train(cod_comm *comm, const char *path, const char *const *overrides, size_t count)
{
    const char *kill_at = getenv("TOY_KILL_AT");
    int64_t step = kill_at != NULL ? strtoll(kill_at, NULL, 10) : -1;
    cod_run_config config;
    cod_train_ending ending;
    COD_TRY(cod_group_agree(cod_comm_world(comm), cod_run_config_load_to_train(path, overrides, count, &config), NULL));
    cod_comm_configure(comm, &config.cluster);
    const cod_train_request request = {
        .config = &config, .comm = comm, .report = follow, .report_context = &step, .version = "toy"};
    COD_TRY(cod_train_run(&request, &ending));
    cod_run_config_clear(&config);
    return check_late();
}

int main(int argc, char **argv)
{
    cod_comm *comm = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: toy_job CONFIG.yaml [key.path=value ...]\n");
        return 2;
    }
    cod_status status = register_all();
    COD_THEN(status, cod_comm_init(NULL, &comm));
    COD_THEN(status, train(comm, argv[1], (const char *const *)(argv + 2), (size_t)argc - 2));
    COD_THEN(status, cod_comm_finalize(comm));
    if (status != COD_OK)
        end_job(status);
    return 0;
}
