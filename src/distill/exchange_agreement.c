/* What the ranks of a group tell each other of an exchange: numbers in the trainer's per-step reduction, which act two steps later. */
#include "distill/exchange_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the group; INTERVAL and NOW (its clock) are the first rank's. */
enum { FLAG_INTERVAL, FLAG_NOW, FLAG_LEFT_OUT, FLAG_PRINT, FLAG_PRINT_SQUARE, FLAG_WAITING, FLAG_UNFIT, GROUP_FLAGS };
/* Of each pull; PEER, VERSION, LIFE (what it proposes) and PUBLISHED (the time of what is being pulled) are the first rank's. */
enum { FLAG_PEER, FLAG_VERSION, FLAG_LIFE, FLAG_DONE, FLAG_LOST, FLAG_REFUSED, FLAG_BYTES, FLAG_PUBLISHED, PULL_FLAGS };
_Static_assert((int)GROUP_FLAGS + (int)PULL_FLAGS * (int)COD_EXCHANGE_PULLS_MOST == (int)COD_EXCHANGE_FLAGS_MOST,
               "each flag has a number");
enum { AGREEMENT_DELAY = 2 };

size_t cod_exchange_flag_count(const cod_exchange *e)
{
    return GROUP_FLAGS + PULL_FLAGS * (size_t)e->pull_count;
}

void cod_exchange_flags_out(const cod_exchange *e, double *out)
{
    memset(out, 0, cod_exchange_flag_count(e) * sizeof *out);
    out[FLAG_PRINT] = (double)e->publisher.print_of;
    out[FLAG_PRINT_SQUARE] = out[FLAG_PRINT] * out[FLAG_PRINT];
    out[FLAG_WAITING] = e->publisher.waiting;
    out[FLAG_UNFIT] = e->publisher.waiting && e->publisher.unfit;
    if (exchange_waits(e))
        return;
    if (e->rank == 0) {
        out[FLAG_INTERVAL] =
            1e3 * (cod_clock_s() - e->publisher.published_s) >= e->options.min_interval_ms / e->fragments;
        out[FLAG_NOW] = (double)exchange_wall_ms();
    }
    out[FLAG_LEFT_OUT] = (double)exchange_left_out(e);
    for (int k = 0; k < e->pull_count; k++) {
        const exchange_pull *pull = &e->pulls[k];
        double *of_pull = out + GROUP_FLAGS + k * PULL_FLAGS;
        if (e->rank == 0) {
            of_pull[FLAG_PEER] = pull->proposed + 1;
            of_pull[FLAG_VERSION] = (double)pull->proposed_version;
            of_pull[FLAG_LIFE] = (double)pull->proposed_life;
            of_pull[FLAG_PUBLISHED] = (double)pull->published_ms;
        }
        of_pull[FLAG_DONE] = pull->done;
        of_pull[FLAG_LOST] = pull->lost;
        of_pull[FLAG_REFUSED] = pull->refused;
        of_pull[FLAG_BYTES] = (double)pull->bytes;
    }
}

/** What all ranks of the group together pulled of a version, and how that ended. */
static void note_outcome(exchange_pull *pull, const double in[PULL_FLAGS])
{
    held_peer *peer = pull->peer;
    peer->counters.bytes += (uint64_t)in[FLAG_BYTES];
    if (in[FLAG_REFUSED] > 0)
        peer->counters.rejected++;
    else if (in[FLAG_LOST] > 0)
        peer->counters.lost++;
    else
        peer->incoming_ms = (uint64_t)in[FLAG_PUBLISHED];
}

/** What the first rank proposed is begun by all. */
static cod_status begin(cod_exchange *e, exchange_pull *pull, int64_t step, const double in[PULL_FLAGS])
{
    held_peer *peer = &e->peers[(int)in[FLAG_PEER] - 1];
    const uint64_t version = (uint64_t)in[FLAG_VERSION];
    pull->proposed = EXCHANGE_NO_PEER;
    if (version <= peer->version || version <= peer->refused)
        return COD_OK;
    return exchange_start_pull(e, peer, version, (uint64_t)in[FLAG_LIFE], step);
}

static cod_status act(cod_exchange *e, exchange_pull *pull, int64_t step, const double in[PULL_FLAGS])
{
    if (pull->phase == IDLE)
        return in[FLAG_PEER] > 0 ? begin(e, pull, step, in) : COD_OK;
    if (step - AGREEMENT_DELAY < pull->phase_since) /* sent before the present phase began, of the one before */
        return COD_OK;
    const bool all_done = (int)in[FLAG_DONE] == e->size;
    if (pull->phase == PULLING && (all_done || in[FLAG_LOST] > 0))
        note_outcome(pull, in);
    /* Ranks that still gather may not be disturbed: what one refuses then, all refuse. */
    const bool settled = pull->phase == PULLING || (int)(in[FLAG_DONE] + in[FLAG_LOST]) == e->size;
    if (in[FLAG_LOST] > 0 && !settled)
        return COD_OK;
    if (in[FLAG_LOST] > 0 && pull->phase == GATHERING)
        pull->peer->counters.rejected++;
    if (in[FLAG_LOST] > 0)
        exchange_give_up(e, pull, in[FLAG_REFUSED] > 0);
    else if (all_done && pull->phase == PULLING && (exchange_sends_shards(e) || e->on_device != NULL))
        return exchange_start_gather(e, pull, step);
    else if (all_done)
        exchange_take_over(e, pull, step);
    return COD_OK;
}

/** A rank, and its fingerprint of what its group published. */
typedef struct rank_print {
    uint64_t print;
    int world_rank;
} rank_print;

/** Names the ranks whose weights are not the first rank's. */
static void name_unlike(const cod_exchange *e, const rank_print *prints)
{
    char names[256] = "";
    size_t used = 0;
    for (int r = 1; r < e->size && used < sizeof names; r++)
        if (prints[r].print != prints[0].print)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d (%s)", used > 0 ? ", " : "",
                                     prints[r].world_rank, cod_comm_node_name(e->comm, cod_group_node_of(e->group, r)));
    cod_log_warn(
        "group %d: the weights of rank %s are not those of rank %d (%s): ranks of a group must compute alike, on "
        "processors or GPUs of one kind, or with COD_CPU_CONVOLUTION=fixed; its peers pull a mixture",
        cod_group_index(e->group), names, prints[0].world_rank,
        cod_comm_node_name(e->comm, cod_group_node_of(e->group, 0)));
}

/** All ranks hear the same sums: n numbers are equal where n times the sum of their squares is the square of their sum. */
static cod_status compare_prints(cod_exchange *e, double sum, double squares)
{
    if (e->publisher.unlike || e->size * squares == sum * sum)
        return COD_OK;
    const rank_print mine = {e->publisher.print_of, cod_group_world_rank(e->group, cod_group_index(e->group), e->rank)};
    rank_print *all = calloc((size_t)e->size, sizeof *all);
    cod_status status = all != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    e->publisher.unlike = true;
    COD_TRY(cod_group_agree(e->group, status, NULL));
    status = cod_group_gather(e->group, &mine, sizeof mine, all);
    if (status == COD_OK && e->rank == 0)
        name_unlike(e, all);
    free(all);
    return status;
}

cod_status cod_exchange_flags_in(cod_exchange *e, int64_t step, const double *in)
{
    COD_TRY(compare_prints(e, in[FLAG_PRINT], in[FLAG_PRINT_SQUARE]));
    if (e->publisher.waiting &&
        step - AGREEMENT_DELAY >= e->publisher.step) /* else it may be of the publication before */
        exchange_end_waiting(e, in[FLAG_WAITING], in[FLAG_UNFIT]);
    if (exchange_waits(e))
        return COD_OK;
    exchange_note_left_out(&e->publisher, in[FLAG_LEFT_OUT]);
    e->now_ms = (uint64_t)in[FLAG_NOW];
    if (in[FLAG_INTERVAL] > 0 && step - AGREEMENT_DELAY > e->publisher.step)
        e->publisher.interval_passed = true;
    for (int k = 0; k < e->pull_count; k++)
        COD_TRY(act(e, &e->pulls[k], step, in + GROUP_FLAGS + k * PULL_FLAGS));
    return COD_OK;
}
