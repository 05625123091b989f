/* Exchanges of groups that are many, or whose ranks differ. */
#include "comm/job.h"

#include "core/log.h"
#include "core/trace.h"
#include "distill/exchange_internal.h"
#include "distill/exchange_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_NAME = 7, DELTA = COD_EXCHANGE_DELTA };

/** More peers than one pull after another could follow: publications come every 12 steps, and a pull takes 7 at least. */
static void all_peers_have_their_turn_within_a_period(void **state)
{
    (void)state;
    enum { GROUPS = 4, PERIOD = 12, VERSIONS = 40 };
    static const int sizes[GROUPS] = {1, 1, 1, 1};
    exchange_run r;
    cod_exchange_options options = run_options(PERIOD);
    int64_t missed = 0, all = 0;
    if (cod_comm_size(job) != GROUPS)
        return;
    options.codec = DELTA; /* each is against the one before: who misses one must wait for a key */
    options.slots = 8;
    run_open(&r, sizes, GROUPS, &options, RUN_NAME);
    r.pause_ms = 2;
    run_until(&r, PERIOD * VERSIONS);
    for (int g = 0; g < GROUPS; g++) {
        int64_t first = 0, last = 0;
        for (int64_t v = VERSIONS; v > 0; v--) {
            const bool seen = (r.seen[g] >> v & 1) != 0;
            last = seen && last == 0 ? v : last;
            first = seen ? v : first;
            all += last > 0;
            missed += last > 0 && !seen;
        }
        missed -= first > 0 ? first - 1 : 0; /* before the first that was seen */
        all -= first > 0 ? first - 1 : 0;
    }
    const uint64_t takeovers = r.takeovers;
    run_close(&r);
    if (cod_comm_rank(job) == 0)
        print_message("%llu of %lld versions were taken over\n", (unsigned long long)takeovers, (long long)all);
    check_all(all >= (GROUPS - 1) * VERSIONS / 2 && 10 * missed <= all);
}

/** Two groups. */
typedef struct split {
    int ranks, sizes[2];
} split;

static char warning[512];

static void keep_warning(void *context, cod_log_level level, const char *line)
{
    (void)context;
    if (level == COD_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", line);
}

/** As of mixed processors: what they compute differs in a bit, and readers would put together what does not belong together. */
static void ranks_with_other_weights_are_named(void **state)
{
    (void)state;
    static const split splits[] = {{3, {2, 1}}, {4, {2, 2}}, {4, {1, 3}}};
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++)
        for (int deterministic = 0; deterministic < 2; deterministic++) {
            exchange_run r;
            cod_exchange_options options = run_options(20);
            const int group = s->sizes[0] > 1 ? 0 : 1;
            char named[64];
            if (s->ranks != cod_comm_size(job))
                continue;
            options.deterministic = deterministic != 0;
            run_open(&r, s->sizes, 2, &options, RUN_NAME);
            r.is_odd = cod_group_index(r.group) == group;
            const int odd = cod_group_world_rank(r.group, group, s->sizes[group] - 1);
            warning[0] = '\0';
            cod_log_set_sink(keep_warning, NULL, COD_LOG_WARN);
            run_until(&r, 75);
            const bool none = warning[0] == '\0';
            r.odd_step = cod_comm_rank(job) == odd ? 80 : 0;
            run_until(&r, 130);
            snprintf(named, sizeof named, "the weights of rank %d (", odd);
            const bool first = r.is_odd && cod_group_rank(r.group) == 0;
            const bool told = first ? strstr(warning, named) != NULL : strstr(warning, "weights") == NULL;
            run_close(&r);
            cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
            check_all(none && told);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_peers_have_their_turn_within_a_period),
        cmocka_unit_test(ranks_with_other_weights_are_named),
    };
    return cmocka_run_group_tests(tests, job_setup, job_teardown);
}
