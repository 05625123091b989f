/* `local_sgd`: groups train alone and average their weights from time to time. */
#include "strategies/local_sgd.h"

#include "strategies/local_steps.h"

#include <stdlib.h>

static const cod_option option_list[] = {
    {"period", COD_OPTION_INT, offsetof(cod_local_sgd_options, period), "50", 1, 1e9, NULL,
     "Steps that groups train alone before they average their weights. All groups wait for each other at an average."},
};
static const cod_option_table table = {
    "local_sgd", "Strategy local_sgd: groups average their weights (McMahan et al. 2017, Stich 2019).", option_list,
    sizeof option_list / sizeof option_list[0], sizeof(cod_local_sgd_options)};

static cod_status meet(cod_local_steps *local, cod_train_context *context, float *values)
{
    (void)context;
    return cod_between_average(&local->between, values, cod_local_steps_count(local));
}

static void destroy(cod_strategy *strategy)
{
    cod_local_steps_clear((cod_local_steps *)strategy);
    free(strategy);
}

static const cod_strategy_ops ops = {
    .start = cod_local_steps_start,
    .gradient_ready = cod_local_steps_gradient_ready,
    .before_update = cod_local_steps_before_update,
    .after_step = cod_local_steps_after_step,
    .stats = cod_local_steps_stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    const cod_local_sgd_options *options = cod_run_config_section(run, &table);
    cod_local_steps *local = calloc(1, sizeof *local);
    COD_REQUIRE_MEMORY(local);
    *local = (cod_local_steps){.base.ops = &ops, .period = options->period, .meet = meet};
    *out = &local->base;
    return COD_OK;
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const cod_local_sgd_options *options = cod_run_config_section(run, &table);
    (void)state;
    *out = (cod_strategy_plan){.what = "weights averaged",
                               .every_steps = options->period,
                               .sent_bytes = cod_between_sent_bytes(values, run->group_count),
                               .memory_bytes = (double)values * sizeof(float)};
}

void cod_strategy_register_local_sgd(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "local_sgd",
        .help = "groups train alone; every so many steps they wait for each other and average their weights",
        .keeps_state = true, /* none but how ranks are divided into groups, which a resumed run must find as it was */
        .averages = true,
        .only_averages = true,
        .tables = tables,
        .table_count = 1,
        .check = cod_local_steps_check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
