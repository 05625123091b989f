#include "tools/launch.h"

#include "comm/comm.h"
#include "core/trace.h"
#include "tools/cmd.h"
#include "tools/deaths.h"
#include "tools/display.h"
#include "tools/launcher.h"
#include "tools/news.h"
#include "tools/print.h"
#include "tools/relay.h"
#include "tools/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 50 };
/** Seconds; a job that does not answer is ended within ten. */
static const double REPEAT_S = 0.5, EARLY_S = 1, ANSWER_S = 5, KILL_S = 2, DRAIN_S = 5, START_S = 120;

/** Why the launching process has ended its job itself. */
typedef enum end_reason { NOT_ENDED, PRESSED, DEAF, ASKED_EARLY, NEVER_BEGUN } end_reason;

typedef struct job {
    pid_t pid; /**< of mpirun */
    int from;  /**< its standard error; -1 = closed by all who wrote there */
    int ranks;
    cod_deaths *deaths;
    cod_relay relay;
    cod_lines lines;
    double start_s, patience_s; /**< when it was started, and how long the first word of a rank may take */
    double asked_s, told_s;     /**< when it was asked to end, and when that was last handed on; 0 = never */
    double terminated_s;        /**< when mpirun was sent SIGTERM; 0 = never */
    double gone_s;              /**< when mpirun was seen to have ended; 0 = it has not */
    int state;                  /**< as waitpid() has it */
    end_reason reason;
    int deaf; /**< a rank that did not answer */
} job;

/** In the child: away from the terminal's Ctrl-C, which is for the parent to hand on, and gone when the parent is. */
static void detach(pid_t parent, int out)
{
    dup2(out, STDERR_FILENO);
    if (cod_launcher_is_hydra())
        dup2(out, STDOUT_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    setpgid(0, 0);
    cod_stop_release();
    signal(SIGUSR1, SIG_DFL); /* by it ranks are asked, though the user may have it ignored */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(COD_EXIT_FAILED);
}

static atomic_int own_rank;

static void answer(int signal, bool by_terminal)
{
    (void)signal;
    (void)by_terminal;
    cod_news_send_asked(own_rank);
}

void cod_launch_tell_rank(int rank)
{
    char pid[16];
    if (!cod_news_are_read() || rank >= COD_RELAY_MOST)
        return;
    cod_deaths_join();
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    cod_news_send(COD_NEWS_BEGUN, rank, pid);
    own_rank = rank;
    cod_stop_on_request(answer);
}

void cod_launch_tell_exit_code(int code)
{
    cod_news_send(COD_NEWS_CODE, code, NULL);
}

bool cod_launch_is_told(void)
{
    return getenv(COD_LAUNCHER_VARIABLE) != NULL && cod_comm_launched_ranks() > 0 && cod_news_are_read();
}

void cod_launch_tell_over(int code)
{
    cod_news_send(COD_NEWS_OVER, code, NULL);
}

/** Starts `args`; its standard error can be read from *from. @return the child, or -1 */
static pid_t start(char **args, int *from)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    cod_news_listen();
    cod_launcher_set_environment();
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        detach(parent, ends[1]);
        execvp(args[0], args);
        cod_print(stderr,
                  "codistill: cannot start '%s': %s; install it (openmpi-bin), name another in COD_MPIEXEC, or set "
                  "cluster.groups=1 and ranks_per_group=1\n",
                  args[0], strerror(errno));
        _exit(COD_EXIT_FAILED);
    }
    close(ends[1]);
    *from = ends[0];
    return pid;
}

/** Reads what has come; waits a little where nothing has. */
static void read_some(job *j)
{
    char data[4096];
    struct pollfd ready = {.fd = j->from, .events = POLLIN};
    if (poll(&ready, j->from >= 0, POLL_MS) <= 0 || ready.revents == 0)
        return;
    const ssize_t got = read(j->from, data, sizeof data);
    if (got > 0) {
        cod_lines_add(&j->lines, data, (size_t)got, cod_relay_line, &j->relay);
    } else if (got == 0 || errno != EINTR) {
        close(j->from);
        j->from = -1;
    }
}

/** mpirun ends its ranks then, Open MPI's after a second. */
static void terminate(job *j, end_reason reason, double now)
{
    j->reason = reason;
    j->deaf = cod_relay_deaf(&j->relay);
    j->terminated_s = now;
    kill(j->pid, SIGTERM);
}

/**
 * Hands a request to end on until every rank has answered. mpirun answers SIGTERM and SIGINT by killing its ranks;
 * SIGUSR1 it only hands on, and ranks save and end. Before a rank has told of itself, SIGUSR1 could meet a process that
 * does not catch it yet; as it tells when MPI has begun, which all ranks wait for, all of them do from then on. Once
 * the first rank has told how the job ended, SIGUSR1 could meet an mpirun that no longer catches it, and would kill it.
 */
static void hand_on(job *j, double now)
{
    j->asked_s = j->asked_s > 0 ? j->asked_s : now;
    if (cod_stop_is_pressing()) {
        terminate(j, PRESSED, now);
    } else if (j->relay.code < 0 && (j->relay.told == 0 || j->relay.heard < j->relay.told)) {
        if (now - j->asked_s > (j->relay.told == 0 ? EARLY_S : ANSWER_S)) {
            terminate(j, j->relay.told == 0 ? ASKED_EARLY : DEAF, now);
        } else if (j->relay.told > 0 && now - j->told_s > REPEAT_S) {
            kill(j->pid, SIGUSR1);
            j->told_s = now;
        }
    }
}

static void look_after(job *j, double now)
{
    if (j->terminated_s > 0) {
        if (now - j->terminated_s > KILL_S) {
            kill(-j->pid, SIGKILL); /* and what it has started without a group of its own */
            cod_deaths_kill(j->deaths);
        }
    } else if (*cod_stop_signal() != 0) {
        hand_on(j, now);
    } else if (j->relay.told == 0 && now - j->start_s > j->patience_s) {
        terminate(j, NEVER_BEGUN, now);
    }
}

/** Shows the job's lines until it has ended, and sees to it that it ends when it is asked to. */
static void follow(job *j)
{
    /* Ranks outlive an mpirun that was killed: what they still save counts, and the next job finds none of them. */
    while (j->gone_s == 0 || j->from >= 0 || !cod_deaths_are_complete(j->deaths)) {
        read_some(j);
        const double now = cod_clock_s();
        if (j->gone_s == 0 && waitpid(j->pid, &j->state, WNOHANG) == j->pid)
            j->gone_s = now;
        if (j->gone_s == 0) {
            look_after(j, now);
        } else if (now - j->gone_s > DRAIN_S) { /* some process has its standard error, and outlives it */
            cod_deaths_kill(j->deaths);
            break;
        }
    }
    if (j->from >= 0)
        close(j->from);
    cod_lines_end(&j->lines, cod_relay_line, &j->relay);
}

/** Whether nothing has failed where a job ends with this code. */
static bool is_good(int code)
{
    return code == COD_EXIT_OK || code == COD_EXIT_STOPPED;
}

/** Why a job failed of which no rank has said so; "" = it is not known, or has been said. */
static void explain(const job *j, const cod_relay_death *death, cod_launch_ending *ending)
{
    const size_t bytes = sizeof ending->why;
    const bool killed = WIFSIGNALED(j->state) && j->reason == NOT_ENDED;
    /* Hydra hands on the SIGTERM by which a job is given up, and ranks that were about to begin save. */
    const bool well = is_good(j->relay.code) && WIFEXITED(j->state) && WEXITSTATUS(j->state) == COD_EXIT_OK;
    if (j->relay.spoken || j->relay.over || j->reason == PRESSED) /* who asks twice knows why ranks are killed */
        return;
    if (j->reason == ASKED_EARLY && well)
        return;
    ending->has_begun = j->relay.told > 0 || death->rank >= 0;
    if (j->reason == DEAF) {
        ending->rank = j->deaf;
        snprintf(ending->why, bytes,
                 "rank %d did not answer within %.0f s when the job was asked to end; the job was killed", j->deaf,
                 ANSWER_S);
    } else if (death->rank >= 0 && j->reason == NOT_ENDED) {
        ending->rank = death->rank;
        snprintf(ending->why, bytes, "%s", death->text);
    } else if (killed) {
        snprintf(ending->why, bytes, "mpirun was killed by signal %d (%s)", WTERMSIG(j->state),
                 strsignal(WTERMSIG(j->state)));
        ending->has_begun = true;
    } else if (j->reason == NEVER_BEGUN) {
        snprintf(
            ending->why, bytes,
            "'%.4000s' has started none of %d ranks within %.3g s, and was ended; COD_START_TIMEOUT_S is the time that "
            "it may take",
            cod_launcher_program(), j->ranks, j->patience_s);
    } else if (j->reason == ASKED_EARLY || (j->relay.told == 0 && *cod_stop_signal() != 0)) {
        /* mpirun leaves its ranks two seconds in which they may begin, and loses what they say: the folder tells. */
        snprintf(ending->why, bytes, "the job was asked to end before its ranks had begun, and was ended");
        ending->has_begun = true;
    } else if (j->relay.told == 0) {
        snprintf(ending->why, bytes, "'%.4000s' ended with exit code %d and started none of %d ranks",
                 cod_launcher_program(), WEXITSTATUS(j->state), j->ranks);
    } else if (j->relay.code < 0) {
        const bool ended_well = WEXITSTATUS(j->state) == COD_EXIT_OK;
        snprintf(ending->why, bytes, "'%.4000s' ended with exit code %d%s", cod_launcher_program(),
                 WEXITSTATUS(j->state), ended_well ? ", but no rank has told how the job ended" : "");
        ending->has_begun = true;
    }
}

/** @param death  of a rank, as mpirun said */
static void conclude(const job *j, const cod_relay_death *death, cod_launch_ending *ending)
{
    explain(j, death, ending);
    const bool unexplained = !j->relay.spoken && !j->relay.over && j->reason == NOT_ENDED && death->rank < 0;
    if ((unexplained && !WIFSIGNALED(j->state)) || (ending->why[0] != '\0' && !ending->has_begun))
        cod_print_text(stderr, j->relay.held_text); /* what mpirun said where nobody else has */
    /* A first rank that saved and ended well has not seen that another failed. */
    const bool failed = j->relay.spoken || ending->why[0] != '\0';
    const int code = j->relay.code >= 0 && !(failed && is_good(j->relay.code)) ? j->relay.code
                     : WIFEXITED(j->state)                                     ? WEXITSTATUS(j->state)
                                                                               : COD_EXIT_FAILED;
    ending->code = code == COD_EXIT_USAGE || (is_good(code) && !failed) ? code : COD_EXIT_FAILED;
}

static void see_through(job *j, cod_launch_ending *ending)
{
    const char *patience = getenv("COD_START_TIMEOUT_S");
    cod_relay_death death;
    j->start_s = cod_clock_s();
    j->patience_s = patience != NULL && atof(patience) > 0 ? atof(patience) : START_S;
    if (!cod_relay_begin(&j->relay, cod_news_token(), j->deaths)) {
        kill(j->pid, SIGKILL);
        return;
    }
    follow(j);
    cod_display_close();
    cod_relay_end(&j->relay, &death);
    conclude(j, &death, ending);
    cod_relay_clear(&j->relay);
}

void cod_launch(const cod_run_config *config, int ranks, int argc, char **argv, cod_launch_ending *ending)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **args = calloc((size_t)argc + COD_LAUNCHER_ARGUMENTS + 3, sizeof *args);
    cod_deaths deaths;
    static job j; /* large */
    j = (job){.pid = -1, .from = -1, .ranks = ranks, .deaths = &deaths};
    *ending = (cod_launch_ending){.code = COD_EXIT_FAILED, .rank = -1};
    cod_deaths_open(&deaths);
    if (length > 0 && args != NULL) {
        self[length] = '\0';
        int used =
            cod_launcher_arguments(ranks, cod_launcher_ranks_per_node(config, ranks, cod_launcher_nodes()), args);
        args[used++] = self;
        args[used++] = "train";
        for (int i = 1; i < argc; i++)
            args[used++] = argv[i];
        j.pid = start(args, &j.from);
    }
    if (j.pid > 0)
        see_through(&j, ending);
    else
        cod_print(stderr, "codistill: cannot prepare to start mpirun: %s\n", strerror(errno));
    cod_deaths_close(&deaths);
    free(args);
}
