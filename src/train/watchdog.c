#include "train/watchdog_internal.h"

#include "core/log.h"
#include "core/trace.h"
#include "io/file_watch.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LOOK_MS = 100 };
/** How long a run that is asked to end may go on with its set-up and its first step: nothing is lost with these. */
static const double SET_UP_S = 5;
/** In place of a checkpoint's step. */
enum { NOT_KNOWN = -1 };

struct trainer_watchdog {
    const cod_train_request *request;
    double patience_s; /**< checkpoint.write_timeout_s */
    cod_file_watch *watch;
    pthread_t thread;
    pthread_mutex_t mutex; /**< of what follows */
    pthread_cond_t ended;
    bool ends;
    bool steps;        /**< one is done, or there are none to do */
    double end_s;      /**< by cod_clock_s(): when train.max_time is over */
    int64_t last_good; /**< checkpoint; 0 = none yet */
};

/** Sleeps until the next look. @return whether there is one */
static bool sleep_until_next(trainer_watchdog *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000000L * LOOK_MS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->mutex);
    if (!w->ends)
        pthread_cond_timedwait(&w->ended, &w->mutex, &until);
    const bool ends = w->ends;
    pthread_mutex_unlock(&w->mutex);
    return !ends;
}

static bool is_asked_to_end(trainer_watchdog *w)
{
    const atomic_int *signal = w->request->stop_signal;
    pthread_mutex_lock(&w->mutex);
    const double end_s = w->end_s;
    pthread_mutex_unlock(&w->mutex);
    return (signal != NULL && *signal != 0) || cod_clock_s() > end_s;
}

/** "the last good checkpoint is of step 40": as this rank knows, since the folder may hang, too. */
static void describe_last_good(trainer_watchdog *w, char out[80])
{
    pthread_mutex_lock(&w->mutex);
    const int64_t step = w->last_good;
    pthread_mutex_unlock(&w->mutex);
    if (step > 0)
        snprintf(out, 80, "the last good checkpoint is of step %lld", (long long)step);
    else
        snprintf(out, 80, "%s", step == NOT_KNOWN ? "no checkpoint has been changed" : "there is no checkpoint yet");
}

static void tell_hang(trainer_watchdog *w, const cod_file_wait *wait, double waited_s)
{
    char good[80];
    describe_last_good(w, good);
    cod_log_warn("storage does not answer: rank %d has waited %.3g s to %s '%s'. It goes on when storage answers; "
                 "a run that is asked to end meanwhile (SIGINT, SIGTERM, train.max_time) ends without it, %.3g s after "
                 "it was asked; %s",
                 cod_comm_rank(w->request->comm), waited_s, wait->verb, wait->path, w->patience_s, good);
}

static void end_run(trainer_watchdog *w, const cod_file_wait *wait, double waited_s)
{
    char good[80];
    describe_last_good(w, good);
    w->request->give_up(
        w->request->give_up_context,
        cod_fail(
            COD_ERR_IO,
            "storage does not answer: the run was asked to end, has waited %.3g s to %s '%s', and ends without it; %s",
            waited_s, wait->verb, wait->path, good));
}

/** Ends a run that was asked to end, but does not come to its first step. */
static void end_set_up(trainer_watchdog *w)
{
    pthread_mutex_lock(&w->mutex);
    const bool steps = w->steps;
    pthread_mutex_unlock(&w->mutex);
    if (!steps)
        w->request->give_up(w->request->give_up_context,
                            cod_fail(COD_ERR_INTERRUPTED,
                                     "the run was asked to end while it was being set up, and has "
                                     "ended before its first step was done; checkpoints are as they were"));
}

static void *look_on(void *context)
{
    trainer_watchdog *w = context;
    cod_file_wait wait = {0}, told = {0};
    double asked_s = INFINITY;
    while (sleep_until_next(w)) {
        const double now = cod_clock_s();
        const bool waits = cod_file_watch_read(w->watch, &wait), hangs = waits && now - wait.since_s >= w->patience_s;
        if (waits) /* which takes no processor time, and which ends no run by itself */
            cod_comm_note_life(w->request->comm);
        if (isinf(asked_s) && is_asked_to_end(w))
            asked_s = now;
        if (told.number != 0 && (!hangs || told.number != wait.number)) {
            cod_log_info("storage answers again: rank %d took %.3g s to %s '%s'", cod_comm_rank(w->request->comm),
                         now - told.since_s, told.verb, told.path);
            told.number = 0;
        }
        if (hangs && told.number == 0) {
            tell_hang(w, &wait, now - wait.since_s);
            told = wait;
        }
        if (hangs && now - asked_s >= w->patience_s && w->request->give_up != NULL)
            end_run(w, &wait, now - wait.since_s);
        else if (now - asked_s >= SET_UP_S && w->request->give_up != NULL)
            end_set_up(w);
    }
    return NULL;
}

/** Its thread is not running. */
static void destroy(trainer_watchdog *w)
{
    cod_file_watch_end(w->watch);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

cod_status trainer_watchdog_begin(const cod_train_request *request, trainer_watchdog **out)
{
    trainer_watchdog *w = calloc(1, sizeof *w);
    pthread_condattr_t monotonic;
    *out = NULL;
    COD_REQUIRE_MEMORY(w);
    *w = (trainer_watchdog){.request = request,
                            .patience_s = request->config->checkpoint.write_timeout_s,
                            .end_s = INFINITY,
                            .last_good = NOT_KNOWN};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    cod_status status = cod_file_watch_begin(&w->watch);
    if (status == COD_OK && pthread_create(&w->thread, NULL, look_on, w) != 0)
        status = cod_fail(COD_ERR_MEMORY, "no thread can be started to watch files");
    if (status == COD_OK)
        *out = w;
    else
        destroy(w);
    return status;
}

void trainer_watchdog_end(trainer_watchdog *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->mutex);
    w->ends = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    destroy(w);
}

void trainer_watchdog_note_start(trainer_watchdog *w, int64_t step)
{
    const double max_time_s = w->request->config->max_time_s;
    pthread_mutex_lock(&w->mutex);
    w->end_s = max_time_s > 0 ? cod_clock_s() + max_time_s : INFINITY;
    w->last_good = step;
    pthread_mutex_unlock(&w->mutex);
}

void trainer_watchdog_note_step(trainer_watchdog *w)
{
    pthread_mutex_lock(&w->mutex);
    w->steps = true;
    pthread_mutex_unlock(&w->mutex);
}

void trainer_watchdog_note_checkpoint(trainer_watchdog *w, int64_t step)
{
    pthread_mutex_lock(&w->mutex);
    w->last_good = step;
    pthread_mutex_unlock(&w->mutex);
}
