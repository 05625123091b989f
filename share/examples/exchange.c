/*
 * Publishes and pulls weights of one's own, whatever trains them: mpirun -n 3 exchange. Each rank is a group, and its
 * "training" moves all its weights toward its own number. Every 10 steps it publishes them; what it pulls of the others
 * it averages with its own. Nobody waits for anybody but for the publications themselves (`deterministic`), so that
 * every run prints the same.
 */
#include "exchange/exchange.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 4096, STEPS = 60, HEARD_AFTER = 2 };

typedef struct training {
    cod_comm *comm;
    cod_group *group;
    cod_exchange *exchange;
    float weights[WEIGHTS];
    uint64_t used[64]; /* version of each peer that was averaged last */
    double told[HEARD_AFTER][COD_EXCHANGE_FLAGS_MOST];
} training;

static cod_status publish(training *t, int64_t step)
{
    cod_exchange_part part;
    COD_TRY(cod_exchange_snapshot(t->exchange, step, &part));
    memcpy(part.values->host, t->weights + part.first, part.count * sizeof(float));
    return cod_exchange_publish(t->exchange, step, 0);
}

static void average(training *t, int64_t step)
{
    for (int peer = 0; peer < cod_exchange_peer_count(t->exchange); peer++) {
        cod_exchange_checkpoint theirs;
        cod_exchange_read_checkpoint(t->exchange, peer, 0, &theirs);
        if (theirs.version == t->used[peer])
            continue;
        t->used[peer] = theirs.version;
        const float *values = theirs.values->host;
        for (size_t i = 0; i < WEIGHTS; i++)
            t->weights[i] = 0.5f * (t->weights[i] + values[i]);
        printf("rank %d, step %lld: averaged with group %d as it was at step %lld\n", cod_comm_rank(t->comm),
               (long long)step, cod_exchange_peer_group(t->exchange, peer), (long long)theirs.step);
    }
}

/** What a group's ranks tell each other acts two steps later; a group of several ranks would sum it over them. */
static cod_status one_step(training *t, int64_t step)
{
    double *told = t->told[step % HEARD_AFTER];
    if (step > HEARD_AFTER)
        COD_TRY(cod_exchange_flags_in(t->exchange, step - 1, told));
    const float target = (float)cod_comm_rank(t->comm);
    for (size_t i = 0; i < WEIGHTS; i++)
        t->weights[i] += 0.1f * (target - t->weights[i]);
    if (cod_exchange_publish_due(t->exchange, step))
        COD_TRY(publish(t, step));
    COD_TRY(cod_exchange_advance(t->exchange, step));
    average(t, step);
    cod_exchange_flags_out(t->exchange, told);
    return COD_OK;
}

static cod_status open(training *t)
{
    const int groups = cod_comm_size(t->comm);
    cod_exchange_options options;
    cod_arena texts = {0};
    int sizes[64];
    cod_exchange_model models[64];
    COD_REQUIRE(groups <= 64, "%d ranks are too many for this example; at most 64", groups);
    for (int g = 0; g < groups; g++) {
        sizes[g] = 1;
        models[g] = (cod_exchange_model){.count = WEIGHTS,
                                         .hash = 1}; /* of the architecture: peers with another one are refused */
    }
    COD_TRY(cod_options_set_defaults(&cod_exchange_option_table, &options, &texts));
    options.period = 10;
    options.codec = COD_EXCHANGE_F32;
    options.deterministic = true;
    options.lag_steps = 4; /* from a publication to its use; below the period */
    options.last_step = STEPS;
    COD_TRY(cod_group_create(t->comm, sizes, (size_t)groups, &t->group));
    const cod_status status = cod_exchange_create(t->comm, t->group, &options, models, 1, &t->exchange);
    cod_arena_clear(&texts);
    return status;
}

static cod_status run(training *t)
{
    COD_TRY(cod_comm_init(NULL, &t->comm));
    COD_TRY(open(t));
    for (int64_t step = 1; step <= STEPS; step++)
        COD_TRY(one_step(t, step));
    printf("rank %d: alone its weights would be %d, together they are %.3f\n", cod_comm_rank(t->comm),
           cod_comm_rank(t->comm), (double)t->weights[0]);
    COD_TRY(cod_exchange_destroy(t->exchange));
    cod_group_destroy(t->group);
    return cod_comm_finalize(t->comm);
}

int main(void)
{
    training *t = calloc(1, sizeof *t);
    const cod_status status = t != NULL ? run(t) : cod_fail(COD_ERR_MEMORY, "no memory");
    if (status != COD_OK)
        fprintf(stderr, "exchange: %s\n", cod_error_message());
    free(t);
    return status == COD_OK ? 0 : 1;
}
