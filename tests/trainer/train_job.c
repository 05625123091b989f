#include "train_job.h"

#include "support/folder.h"
#include "support/late.h"
#include "support/patience.h"

#include "core/log.h"
#include "listener.h"
#include "pair.h"
#include "ref/ref.h"
#include "strategies/model_parallel.h"

#include <inprocess.h>

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_A_NODE = 2, FAILED = 3 };

/** Settings of every job. */
static const char *const usual[] = {
    "train.backend=ref",
    "train.precision=f32",
    "train.rate=0.01",
    "train.steps=4",
    "train.autotune=false",
    "model.name=mlp",
    "model.hidden=[5]",
    "data.kind=synthetic",
    "data.synthetic_shape=[1,1,4]",
    "data.synthetic_classes=3",
    "data.synthetic_count=36",
    "data.val_fraction=0.25",
    "data.batch=2",
    "eval.every=0",
    "checkpoint.every=0",
    "log.every=2",
    "log.tensorboard=false",
    "cluster.bind=none",
};
enum { USUAL = sizeof usual / sizeof usual[0] };

_Thread_local job_rank *job_self;

/** What the ranks of the child share. */
typedef struct job_state {
    const train_job *job;
    job_report *report;
    char output[600];
    atomic_int ended;
} job_state;

static job_state state;
static const int cmocka_catches[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void add_text(char *text, size_t capacity, const char *format, va_list args)
{
    const size_t used = strlen(text);
    vsnprintf(text + used, capacity - used, format, args);
}

void job_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_text(job_self->report->notes, JOB_NOTES, format, args);
    va_end(args);
}

static void keep_line(void *context, cod_log_level level, const char *line)
{
    job_report *report = context;
    (void)level;
    pthread_mutex_lock(&log_lock);
    const size_t used = strlen(report->log);
    snprintf(report->log + used, JOB_LOG - used, "%s\n", line);
    pthread_mutex_unlock(&log_lock);
}

int job_set_up(void **unused)
{
    if (cod_backend_register(cod_late_chosen(&cod_ref_backend)) != COD_OK)
        return 1;
    cod_recipe_register_supervised();
    cod_strategies_register_basic();
    cod_strategy_register_model_parallel();
    pair_register();
    listener_register();
    (void)unused;
    return 0;
}

static cod_status train(cod_comm *comm, job_rank *self, cod_train_ending *ending)
{
    const char *settings[USUAL + JOB_SETTINGS + 1];
    cod_run_config config;
    size_t count = 0;
    for (; count < USUAL; count++)
        settings[count] = usual[count];
    settings[count++] = state.output;
    for (size_t i = 0; i < JOB_SETTINGS && self->job->settings[i] != NULL; i++)
        settings[count++] = self->job->settings[i];
    COD_TRY(cod_group_agree(cod_comm_world(comm), cod_run_config_load_to_train(NULL, settings, count, &config), NULL));
    cod_comm_configure(comm, &config.cluster);
    const cod_train_request request = {.config = &config, .comm = comm, .stop_signal = &self->stop, .version = "test"};
    COD_TRY(cod_train_run(&request, ending));
    cod_run_config_clear(&config);
    return COD_OK;
}

/** As `codistill` does: who failed ends the job, but after all others that know of it have said so. */
static _Noreturn void end_job(void)
{
    const int ranks = state.job->fails_alone ? 1 : state.job->ranks;
    for (int ms = 0; ms < COD_TEST_PATIENCE_MS && atomic_load(&state.ended) < ranks; ms++)
        usleep(1000);
    cod_comm_abort(FAILED);
}

/** The thread sanitizer would let the threads of a job that ends run for another second. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}

static int rank_main(void *context)
{
    cod_comm *comm = NULL;
    (void)context;
    if (cod_comm_init(NULL, &comm) != COD_OK)
        abort();
    job_rank self = {.job = state.job, .rank = cod_comm_rank(comm)};
    self.report = &state.report->ranks[self.rank];
    job_self = &self;
    self.report->status = train(comm, &self, &self.report->ending);
    if (self.report->status != COD_OK) {
        snprintf(self.report->message, sizeof self.report->message, "%s", cod_error_message());
        self.report->said_elsewhere = cod_error_said_elsewhere();
    }
    self.report->ended = true;
    atomic_fetch_add(&state.ended, 1);
    if (self.report->status != COD_OK)
        end_job();
    return cod_comm_finalize(comm) == COD_OK ? 0 : 1;
}

/**
 * Of the address sanitizer, where that is linked: leaving by _exit() leaves this out. Ends the process where memory
 * leaked.
 */
void __lsan_do_leak_check(void) __attribute__((weak));

static _Noreturn void run_child(const train_job *job)
{
    state.job = job;
    snprintf(state.output, sizeof state.output, "output=%s", cod_test_at(""));
    cod_log_set_sink(keep_line, state.report, COD_LOG_INFO);
    for (size_t i = 0; i < sizeof cmocka_catches / sizeof cmocka_catches[0]; i++)
        signal(cmocka_catches[i], SIG_DFL);
    alarm(COD_TEST_PATIENCE_S);
    const int failed = cod_inprocess_run(job->ranks, RANKS_A_NODE, rank_main, NULL);
    if (failed == 0 && __lsan_do_leak_check != NULL)
        __lsan_do_leak_check();
    _exit(failed == 0 ? 0 : FAILED);
}

const job_report *job_run(const train_job *job)
{
    int code;
    if (state.report == NULL)
        state.report = mmap(NULL, sizeof *state.report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(state.report != MAP_FAILED && job->ranks <= JOB_RANKS);
    memset(state.report, 0, sizeof *state.report);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_child(job);
    assert_int_equal(waitpid(child, &code, 0), child);
    state.report->killed = !WIFEXITED(code) || (WEXITSTATUS(code) != 0 && WEXITSTATUS(code) != FAILED);
    return state.report;
}

const job_report *job_run_ok(const train_job *job)
{
    const job_report *report = job_run(job);
    for (int r = 0; r < job->ranks; r++)
        if (!report->ranks[r].ended || report->ranks[r].status != COD_OK)
            fail_msg("rank %d %s: %s\nnotes: %s\nlog: %s", r, report->ranks[r].ended ? "failed" : "did not come back",
                     report->ranks[r].message, report->ranks[r].notes, report->log);
    assert_false(report->killed);
    return report;
}

void job_assert_agreed_failure(const job_report *report, int ranks, int rank, cod_status status, const char *part)
{
    int spoke = -1;
    assert_false(report->killed);
    for (int r = 0; r < ranks; r++) {
        const rank_report *own = &report->ranks[r];
        if (!own->ended || own->status == COD_OK)
            fail_msg("rank %d %s", r, own->ended ? "succeeded" : "did not come back");
        if (own->said_elsewhere)
            continue;
        if (spoke >= 0)
            fail_msg("ranks %d and %d both speak: '%s', '%s'", spoke, r, report->ranks[spoke].message, own->message);
        spoke = r;
    }
    if (spoke < 0 || (rank >= 0 && spoke != rank))
        fail_msg("rank %d speaks, not %d", spoke, rank);
    if (report->ranks[spoke].status != status)
        fail_msg("%s, not %s: %s", cod_status_name(report->ranks[spoke].status), cod_status_name(status),
                 report->ranks[spoke].message);
    cod_test_assert_contains(report->ranks[spoke].message, part);
}

static void open_part(const char *run, int64_t step, const char *part, cod_st_file **file)
{
    char name[128];
    snprintf(name, sizeof name, "%s/checkpoints", run);
    assert_ok(cod_checkpoint_open(cod_test_at(name), step, part, file));
}

double job_difference(const char *run, const char *other, int64_t step, const char *part)
{
    cod_st_file *files[2];
    double largest = 0;
    open_part(run, step, part, &files[0]);
    open_part(other, step, part, &files[1]);
    assert_int_equal(cod_st_tensor_count(files[0]), cod_st_tensor_count(files[1]));
    for (size_t t = 0; t < cod_st_tensor_count(files[0]); t++) {
        const cod_st_tensor *a = cod_st_tensor_at(files[0], t), *b = cod_st_tensor_find(files[1], a->name);
        assert_true(b != NULL && a->dtype == b->dtype && a->bytes == b->bytes);
        if (a->dtype != COD_ST_F32 || memcmp(a->data, b->data, a->bytes) == 0) {
            assert_memory_equal(a->data, b->data, a->bytes);
            continue;
        }
        const size_t count = cod_st_count(a);
        float *values = malloc(2 * count * sizeof *values);
        assert_non_null(values);
        assert_ok(cod_st_to_f32(a, values, count));
        assert_ok(cod_st_to_f32(b, values + count, count));
        for (size_t i = 0; i < count; i++) {
            const double difference = fabs((double)values[i] - (double)values[count + i]);
            largest = isnan(difference) ? INFINITY : fmax(largest, fmax(difference, DBL_MIN));
        }
        free(values);
    }
    cod_st_close(files[0]);
    cod_st_close(files[1]);
    return largest;
}
