/* The asynchronous parameter server: what arrives while it evaluates changes nothing of what it evaluates. */
#include "train_job.h"

#include "support/folder.h"

#include "core/hash.h"
#include "strategies/async_internal.h"
#include "strategies/async_parameter_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SERVER, FIRST_WORKER, SECOND_WORKER, RANKS, STEPS = 4 };

/*
 * The server ends a step when the slower worker has pushed. By then it has asked for the statistics of the faster one's
 * next push, but they are held back until the evaluation behind that step has begun. The ranks are threads: they meet
 * in these numbers.
 */
static atomic_int asked;                       /**< pushes whose statistics the server has begun to receive */
static atomic_int evaluations;                 /**< that the server has begun */
static _Atomic uint64_t statistics[STEPS + 1]; /**< by updates: hashes of what the first worker pushed */
static const cod_strategy_ops *ops;            /**< of the strategy itself */

static void await_number(atomic_int *number, int64_t least)
{
    while (atomic_load(number) < least) /* the job's alarm ends a wait that is for ever */
        usleep(100);
}

cod_status __real_cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag, const void *data,
                                     size_t bytes);
cod_status __wrap_cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag, const void *data,
                                     size_t bytes);
cod_status __real_cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag, void *data,
                                        size_t bytes);
cod_status __wrap_cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag, void *data,
                                        size_t bytes);

cod_status __wrap_cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag, const void *data,
                                     size_t bytes)
{
    static int pushes; /* one rank alone sends statistics */
    if (tag == ASYNC_TAG_STATISTICS) {
        pushes++;
        atomic_store(&statistics[pushes], cod_hash(data, bytes, 0));
        await_number(&evaluations, pushes - 1);
    }
    return __real_cod_transfers_send(list, comm, world_rank, tag, data, bytes);
}

cod_status __wrap_cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag, void *data,
                                        size_t bytes)
{
    const cod_status status = __real_cod_transfers_receive(list, comm, world_rank, tag, data, bytes);
    if (tag == ASYNC_TAG_STATISTICS)
        atomic_fetch_add(&asked, 1);
    return status;
}

/** The second worker pushes once the server awaits the next push of the first. */
static cod_status update(cod_strategy *strategy, cod_train_context *context)
{
    const int64_t done = context->step + 1;
    if (job_self->rank == SECOND_WORKER)
        await_number(&asked, done < STEPS ? done + 1 : done);
    return ops->division->update(strategy, context);
}

/** Fails unless the server's weights have the statistics of the first worker's push of this number. */
static cod_status expect_statistics(const cod_train_context *context, int64_t push, const char *when)
{
    const cod_weights *weights = &context->session->weights;
    const size_t trainable = weights->layout.trainable, state = weights->layout.state;
    float *values = malloc((trainable + state) * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_status status = cod_weights_download_sets(weights, cod_set_of(0), values);
    if (status == COD_OK && cod_hash(values + trainable, state * sizeof *values, 0) != atomic_load(&statistics[push]))
        status = cod_fail(COD_ERR_NUMERIC, "%s: the weights have other statistics than those of push %lld", when,
                          (long long)push);
    free(values);
    return status;
}

/** The evaluation follows: that of the server lasts until the statistics of the next push have come. */
static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    cod_transfers *moving = &((async_strategy *)strategy)->links[0].moving;
    const int64_t done = context->step + 1;
    COD_TRY(ops->after_step(strategy, context));
    if (job_self->rank != SERVER || done == STEPS)
        return COD_OK;
    if (moving->count == 0)
        return cod_fail(COD_ERR_NUMERIC, "no push is under way when the evaluation begins");
    COD_TRY(expect_statistics(context, done, "before"));
    atomic_store(&evaluations, (int)done);
    for (bool come = false; !come; usleep(100))
        COD_TRY(cod_transfers_test(moving, &come));
    if (atomic_load(&statistics[done]) == atomic_load(&statistics[done + 1]))
        return cod_fail(COD_ERR_NUMERIC, "the statistics that came are those that were there");
    COD_TRY(expect_statistics(context, done, "after"));
    job_note("unchanged ");
    return COD_OK;
}

static const cod_strategy_kind *kind;

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    static cod_strategy_ops watched;
    static cod_strategy_division division;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    COD_TRY(kind->create(run, out));
    pthread_mutex_lock(&lock); /* all ranks write the same */
    if (ops == NULL) {
        ops = (*out)->ops;
        division = *ops->division;
        division.update = update;
        watched = *ops;
        watched.after_step = after_step;
        watched.division = &division;
    }
    pthread_mutex_unlock(&lock);
    (*out)->ops = &watched;
    return COD_OK;
}

static int set_up(void **state)
{
    static cod_strategy_kind watched;
    const int failed = job_set_up(state);
    cod_strategy_register_async_parameter_server();
    kind = cod_strategy_find("async_parameter_server");
    watched = *kind;
    watched.create = create;
    cod_strategy_register(&watched);
    return failed != 0 ? failed : cod_test_folder_make(state);
}

TEST(statistics_that_arrive_during_an_evaluation_wait)
{
    const train_job job = {.ranks = RANKS,
                           .settings = {"train.strategy=async_parameter_server", "cluster.ranks_per_group=3",
                                        "model.name=cnn", "model.stages=[4]", "model.convolutions=1", "model.hidden=0",
                                        "data.synthetic_shape=[4,4,1]", "eval.every=1"}};
    const job_report *report = job_run_ok(&job);
    assert_string_equal(report->ranks[SERVER].notes, "unchanged unchanged unchanged ");
}

TEST_GROUP(set_up, cod_test_folder_remove)
