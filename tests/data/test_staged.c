/* Work in three stages: orders, bounds and failures. */
#include "support/test.h"

#include "data/staged.h"

#include <pthread.h>
#include <stdio.h>

enum { ITEMS = 40, NOTHING = ITEMS };

typedef struct job {
    pthread_mutex_t mutex;
    pthread_t caller;
    int prepared[ITEMS], computed[ITEMS], finished[ITEMS];
    size_t next_computed, next_done, under_way, most_under_way;
    size_t fails_prepare, fails_compute, fails_finish;
    bool wrong;
} job;

static cod_status fail_at(size_t item, size_t fails, const char *stage)
{
    return item == fails ? cod_fail(COD_ERR_FORMAT, "item %zu cannot be %s", item, stage) : COD_OK;
}

static cod_status prepare(void *context, size_t item)
{
    job *j = context;
    pthread_mutex_lock(&j->mutex);
    j->prepared[item]++;
    j->under_way++;
    j->most_under_way = j->under_way > j->most_under_way ? j->under_way : j->most_under_way;
    pthread_mutex_unlock(&j->mutex);
    return fail_at(item, j->fails_prepare, "prepared");
}

static cod_status compute(void *context, size_t item)
{
    job *j = context;
    pthread_mutex_lock(&j->mutex);
    j->wrong |= !pthread_equal(j->caller, pthread_self()) || item != j->next_computed++ || j->prepared[item] != 1;
    j->computed[item]++;
    pthread_mutex_unlock(&j->mutex);
    return fail_at(item, j->fails_compute, "computed");
}

static cod_status finish(void *context, size_t item)
{
    job *j = context;
    pthread_mutex_lock(&j->mutex);
    j->wrong |= j->computed[item] != 1;
    j->finished[item]++;
    j->under_way--;
    pthread_mutex_unlock(&j->mutex);
    return fail_at(item, j->fails_finish, "finished");
}

static void done(void *context, size_t item)
{
    job *j = context;
    pthread_mutex_lock(&j->mutex);
    j->wrong |= !pthread_equal(j->caller, pthread_self()) || item != j->next_done++ || j->finished[item] != 1;
    pthread_mutex_unlock(&j->mutex);
}

static job new_job(void)
{
    return (job){.mutex = PTHREAD_MUTEX_INITIALIZER,
                 .caller = pthread_self(),
                 .fails_prepare = NOTHING,
                 .fails_compute = NOTHING,
                 .fails_finish = NOTHING};
}

static cod_status run(job *j, int threads)
{
    const cod_staged staged = {j, prepare, compute, finish, done};
    return cod_staged_run(&staged, ITEMS, threads);
}

static const int thread_counts[] = {0, 1, 2, 5, 1000};

TEST(every_item_passes_each_stage_once)
{
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        const int threads = thread_counts[t];
        job j = new_job();
        assert_ok(run(&j, threads));
        for (size_t i = 0; i < ITEMS; i++)
            j.wrong |= j.prepared[i] != 1 || j.computed[i] != 1 || j.finished[i] != 1;
        const size_t used = threads < COD_STAGED_THREADS_MAX ? (size_t)threads : COD_STAGED_THREADS_MAX;
        if (j.wrong || j.next_done != ITEMS || j.most_under_way > (threads > 0 ? used + 2 : 1))
            fail_msg("%d threads: wrong %d, %zu done, %zu under way", threads, j.wrong, j.next_done, j.most_under_way);
    }
    const cod_staged nothing = {0};
    assert_ok(cod_staged_run(&nothing, 0, 3));
}

/** The message is the failing thread's; no item behind the failed one is told of. */
TEST(a_failure_ends_the_work)
{
    static const char *const stages[] = {"prepared", "computed", "finished"};
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++)
        for (size_t stage = 0; stage < 3; stage++) {
            char message[64];
            job j = new_job();
            *(stage == 0 ? &j.fails_prepare : stage == 1 ? &j.fails_compute : &j.fails_finish) = 7;
            snprintf(message, sizeof message, "item 7 cannot be %s", stages[stage]);
            assert_fails(COD_ERR_FORMAT, message, run(&j, thread_counts[t]));
            assert_true(!j.wrong && j.next_done <= 7);
        }
}
