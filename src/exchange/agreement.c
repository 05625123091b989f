#include "exchange/agreement_internal.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the group; INTERVAL and NOW (its clock) are the first rank's. */
enum { FLAG_INTERVAL, FLAG_NOW, FLAG_LEFT_OUT, FLAG_PRINT, FLAG_PRINT_SQUARE, FLAG_WAITING, FLAG_UNFIT, GROUP_FLAGS };
/*
 * Of each pull; PEER, VERSION, LIFE, FOLLOWING (what it proposes) and PUBLISHED (the time of what is being pulled) are
 * the first rank's.
 */
enum {
    FLAG_PEER,
    FLAG_VERSION,
    FLAG_LIFE,
    FLAG_FOLLOWING,
    FLAG_DONE,
    FLAG_LOST,
    FLAG_REFUSED,
    FLAG_BYTES,
    FLAG_PUBLISHED,
    PULL_FLAGS
};
_Static_assert((int)GROUP_FLAGS + (int)PULL_FLAGS * (int)COD_EXCHANGE_PULLS_MOST == (int)COD_EXCHANGE_FLAGS_MOST,
               "each flag has a number");
enum { AGREEMENT_DELAY = 2 };

cod_status exchange_agreement_init(exchange_agreement *a, const exchange_setup *setup, int pull_count)
{
    *a = (exchange_agreement){.setup = setup, .pull_count = pull_count};
    a->pulls = calloc((size_t)pull_count + 1, sizeof *a->pulls);
    COD_REQUIRE_MEMORY(a->pulls);
    for (int k = 0; k < pull_count; k++)
        a->pulls[k].proposal.peer = EXCHANGE_NO_PEER;
    return COD_OK;
}

void exchange_agreement_clear(exchange_agreement *a)
{
    free(a->pulls);
}

size_t exchange_agreement_count(const exchange_agreement *a)
{
    return GROUP_FLAGS + PULL_FLAGS * (size_t)a->pull_count;
}

void exchange_agreement_tell(const exchange_agreement *a, const exchange_publication *publication,
                             const exchange_standing *pulls, double *out)
{
    const bool first = a->setup->rank == 0;
    memset(out, 0, exchange_agreement_count(a) * sizeof *out);
    out[FLAG_PRINT] = (double)publication->print;
    out[FLAG_PRINT_SQUARE] = out[FLAG_PRINT] * out[FLAG_PRINT];
    out[FLAG_WAITING] = publication->waiting;
    out[FLAG_UNFIT] = publication->waiting && publication->unfit;
    if (a->setup->waits)
        return;
    if (first) {
        out[FLAG_INTERVAL] = publication->interval_passed;
        out[FLAG_NOW] = (double)exchange_wall_ms();
    }
    out[FLAG_LEFT_OUT] = (double)publication->left_out;
    for (int k = 0; k < a->pull_count; k++) {
        double *of_pull = out + GROUP_FLAGS + k * PULL_FLAGS;
        if (first) {
            const exchange_proposal *proposal = &a->pulls[k].proposal;
            of_pull[FLAG_PEER] = proposal->peer + 1;
            of_pull[FLAG_VERSION] = (double)proposal->version;
            of_pull[FLAG_LIFE] = (double)proposal->life;
            of_pull[FLAG_FOLLOWING] = proposal->following;
            of_pull[FLAG_PUBLISHED] = (double)pulls[k].published_ms;
        }
        of_pull[FLAG_DONE] = pulls[k].done;
        of_pull[FLAG_LOST] = pulls[k].lost;
        of_pull[FLAG_REFUSED] = pulls[k].refused;
        of_pull[FLAG_BYTES] = (double)pulls[k].bytes;
    }
}

/** A rank, and its fingerprint of what its group published. */
typedef struct rank_print {
    uint64_t print;
    int world_rank;
} rank_print;

/** Names the ranks whose weights are not the first rank's. */
static void name_unlike(const exchange_setup *setup, const rank_print *prints)
{
    char names[256] = "";
    size_t used = 0;
    for (int r = 1; r < setup->size && used < sizeof names; r++)
        if (prints[r].print != prints[0].print)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d (%s)", used > 0 ? ", " : "",
                                     prints[r].world_rank,
                                     cod_comm_node_name(setup->comm, cod_group_node_of(setup->group, r)));
    cod_log_warn(
        "group %d: the weights of rank %s are not those of rank %d (%s): ranks of a group must compute alike, on "
        "processors or GPUs of one kind, or with COD_CPU_CONVOLUTION=fixed; its peers pull a mixture",
        setup->mine, names, prints[0].world_rank, cod_comm_node_name(setup->comm, cod_group_node_of(setup->group, 0)));
}

/**
 * All ranks hear the same sums: n numbers are equal where n times the sum of their squares is the square of their sum.
 */
static cod_status compare_prints(exchange_agreement *a, uint64_t print, double sum, double squares)
{
    const exchange_setup *setup = a->setup;
    if (a->unlike || setup->size * squares == sum * sum)
        return COD_OK;
    const rank_print mine = {print, exchange_world_rank(setup, setup->mine, setup->rank)};
    rank_print *all = calloc((size_t)setup->size, sizeof *all);
    cod_status status = all != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    a->unlike = true;
    COD_TRY(cod_group_agree(setup->group, status, NULL));
    status = cod_group_gather(setup->group, &mine, sizeof mine, all);
    if (status == COD_OK && setup->rank == 0)
        name_unlike(setup, all);
    free(all);
    return status;
}

cod_status exchange_agreement_hear(exchange_agreement *a, int64_t step, uint64_t print, const double *in,
                                   exchange_publications *out)
{
    COD_TRY(compare_prints(a, print, in[FLAG_PRINT], in[FLAG_PRINT_SQUARE]));
    a->now_ms = (uint64_t)in[FLAG_NOW];
    *out = (exchange_publications){.step = step - AGREEMENT_DELAY,
                                   .waiting = (int)in[FLAG_WAITING],
                                   .unfit = (int)in[FLAG_UNFIT],
                                   .interval_passed = in[FLAG_INTERVAL] > 0,
                                   .left_out = in[FLAG_LEFT_OUT]};
    return COD_OK;
}

/** What the first rank proposed is heard by all, and then proposed no more. */
static exchange_decision hear_proposal(exchange_agreed_pull *pull, const double in[PULL_FLAGS],
                                       exchange_proposal *proposal)
{
    if (in[FLAG_PEER] <= 0)
        return EXCHANGE_GO_ON;
    *proposal = (exchange_proposal){.peer = (int)in[FLAG_PEER] - 1,
                                    .version = (uint64_t)in[FLAG_VERSION],
                                    .life = (uint64_t)in[FLAG_LIFE],
                                    .following = (uint32_t)in[FLAG_FOLLOWING]};
    pull->proposal.peer = EXCHANGE_NO_PEER;
    return EXCHANGE_BEGIN;
}

/** Whether all ranks must have everything of a version before they use it. */
static bool gathers(const exchange_setup *setup)
{
    return exchange_sends_shards(setup) || setup->codes_on_device;
}

exchange_decision exchange_agreement_decide(exchange_agreement *a, int place, int64_t step, const double *in,
                                            exchange_proposal *proposal, exchange_outcome *outcome)
{
    exchange_agreed_pull *pull = &a->pulls[place];
    const double *sums = in + GROUP_FLAGS + place * PULL_FLAGS;
    const int size = a->setup->size;
    if (pull->phase == EXCHANGE_IDLE)
        return hear_proposal(pull, sums, proposal);
    if (step - AGREEMENT_DELAY < pull->since) /* said before the present phase began, of the one before */
        return EXCHANGE_GO_ON;
    const bool pulling = pull->phase == EXCHANGE_PULLING, done = (int)sums[FLAG_DONE] == size,
               lost = sums[FLAG_LOST] > 0;
    /* Ranks that still gather may not be disturbed: what one refuses then, all refuse. */
    const bool settled = pulling || (int)(sums[FLAG_DONE] + sums[FLAG_LOST]) == size;
    if (!(done || lost) || !settled)
        return EXCHANGE_GO_ON;
    *outcome = (exchange_outcome){.lost = lost,
                                  .refused = sums[FLAG_REFUSED] > 0,
                                  .bytes = pulling ? (uint64_t)sums[FLAG_BYTES] : 0,
                                  .published_ms = (uint64_t)sums[FLAG_PUBLISHED]};
    const bool gather = !lost && pulling && gathers(a->setup);
    pull->phase = gather ? EXCHANGE_GATHERING : EXCHANGE_IDLE;
    pull->since = step;
    return lost ? EXCHANGE_GIVE_UP : gather ? EXCHANGE_GATHER : EXCHANGE_TAKE_OVER;
}

void exchange_agreement_begin(exchange_agreement *a, int place, int64_t step)
{
    a->pulls[place].phase = EXCHANGE_PULLING;
    a->pulls[place].since = step;
}
