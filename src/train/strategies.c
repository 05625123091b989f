/* The registry, and the strategies without teachers: `single` and `allreduce`. */
#include "train/group_average.h"
#include "train/strategy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STRATEGIES = 32 };
static const cod_strategy_kind *kinds[MAX_STRATEGIES];

void cod_strategy_register(const cod_strategy_kind *kind)
{
    for (size_t i = 0; i < MAX_STRATEGIES; i++) {
        if (kinds[i] == NULL || strcmp(kinds[i]->name, kind->name) == 0) {
            kinds[i] = kind;
            return;
        }
    }
    assert(!"there are more of them than MAX_STRATEGIES");
}

const cod_strategy_kind *cod_strategy_find(const char *name)
{
    for (size_t i = 0; i < MAX_STRATEGIES && kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

const cod_strategy_kind *cod_strategy_at(size_t index)
{
    return index < MAX_STRATEGIES ? kinds[index] : NULL;
}

/** Data-parallel training inside the group, and nothing between groups. */
typedef struct plain_strategy {
    cod_strategy base;
    cod_group_average average;
} plain_strategy;

static cod_status plain_gradient_ready(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                       cod_event *complete)
{
    (void)set;
    return cod_group_average_start(&((plain_strategy *)strategy)->average, context, bucket, complete);
}

static cod_status plain_before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    return cod_group_average_wait(&((plain_strategy *)strategy)->average, context);
}

static void plain_stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    out->waited_s = ((plain_strategy *)strategy)->average.waited_s;
}

static void plain_destroy(cod_strategy *strategy)
{
    cod_group_average_clear(&((plain_strategy *)strategy)->average);
    free(strategy);
}

static const cod_strategy_ops plain_ops = {
    .gradient_ready = plain_gradient_ready,
    .before_update = plain_before_update,
    .stats = plain_stats,
    .destroy = plain_destroy,
};

static cod_status plain_create(const cod_run_config *run, cod_strategy **out)
{
    (void)run;
    plain_strategy *plain = calloc(1, sizeof *plain);
    COD_REQUIRE_MEMORY(plain);
    plain->base.ops = &plain_ops;
    *out = &plain->base;
    return COD_OK;
}

void cod_strategies_register_basic(void)
{
    static const cod_strategy_kind single = {.name = "single",
                                             .help = "one rank, alone",
                                             .single_rank = true,
                                             .averages = true,
                                             .only_averages = true,
                                             .create = plain_create};
    static const cod_strategy_kind allreduce = {
        .name = "allreduce",
        .help = "all ranks are one group and average their gradients every step, during the backward pass",
        .one_group = true,
        .averages = true,
        .only_averages = true,
        .create = plain_create};
    cod_strategy_register(&single);
    cod_strategy_register(&allreduce);
}
