#include "tools/launch.h"

#include "tools/cmd.h"
#include "tools/deaths.h"
#include "tools/display.h"
#include "tools/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TOLD = COD_DEATHS_MOST }; /**< ranks whose process ids are kept */

/** What has been read of a job's standard error. */
typedef struct relay {
    FILE *held; /**< mpirun's own messages: between rules of dashes, and what it says about them */
    char *held_text;
    size_t held_bytes;
    bool in_banner, spoken; /**< a rank has said why the job fails */
    int code;               /**< that the first rank told, or -1 */
    int pids[MOST_TOLD];    /**< of ranks, as they told; else 0 */
    int told;               /**< ranks that did */
    cod_deaths *deaths;
} relay;

static volatile sig_atomic_t child, asked;

/**
 * mpirun answers SIGTERM and SIGINT by killing its ranks, after a sleep that it also keeps after every abort; SIGUSR1
 * it only hands on, and ranks save and end. Who asks twice does not want to wait.
 */
static void pass_on(int signal)
{
    const int known = asked++ == 0 || signal == SIGUSR1 ? SIGUSR1 : SIGTERM;
    if (child > 0)
        kill((pid_t)child, known);
}

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
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(COD_EXIT_FAILED);
}

void cod_launch_tell_rank(int rank)
{
    if (!cod_display_is_read() || rank >= MOST_TOLD)
        return;
    cod_deaths_join();
    fprintf(stderr, "%cP%d %d\n", COD_DISPLAY_MARK, rank, (int)getpid());
}

void cod_launch_tell_exit_code(int code)
{
    if (cod_display_is_read())
        fprintf(stderr, "%cX%d\n", COD_DISPLAY_MARK, code);
}

static bool starts_with(const char *line, const char *start)
{
    return strncmp(line, start, strlen(start)) == 0;
}

static bool is_rule(const char *line)
{
    enum { SHORTEST = 60 };
    const size_t length = strspn(line, line[0] == '=' ? "=" : "-");
    return length >= SHORTEST && line[length] == '\0';
}

/**
 * Whether it is one of the lines that launchers write outside of their banners: Open MPI's "[host:pid] 1 more process
 * has sent help message …"; Hydra's "[mpiexec@host] …", and what follows its banner; MPICH's word on an abort.
 */
static bool is_about_banners(const char *line)
{
    static const char *const hydra[] = {"[mpiexec@",
                                        "[proxy:",
                                        "Abort(",
                                        "YOUR APPLICATION TERMINATED WITH THE EXIT ",
                                        "This typically refers to a problem with your app",
                                        "Please see the FAQ page for "};
    for (size_t i = 0; i < sizeof hydra / sizeof hydra[0]; i++)
        if (starts_with(line, hydra[i]))
            return true;
    return line[0] == '[' && (strstr(line, "sent help message") || strstr(line, "orte_base_help_aggregate") ||
                              strstr(line, "show_help.c"));
}

/**
 * The launcher's word on a rank that a signal ended; Open MPI 5 breaks its lines. Hydra knows the process only, and may
 * name one that it killed itself when another had died.
 */
static void read_death(const relay *r, const char *text, cod_launch_ending *ending)
{
    static const char open_mpi[] = "noticed that process rank ", hydra[] = "=   PID ", hydra_signal[] = "(signal ";
    const char *at = strstr(text, open_mpi);
    int rank = -1, pid, signal;
    char node[64];
    if (at != NULL && sscanf(at + sizeof open_mpi - 1, "%d with PID %d on node %63s exited on signal %d", &rank, &pid,
                             node, &signal) != 4)
        rank = -1;
    at = at == NULL ? strstr(text, hydra) : NULL;
    if (at != NULL && sscanf(at + sizeof hydra - 1, "%d RUNNING AT %63s", &pid, node) == 2 &&
        (at = strstr(at, hydra_signal)) != NULL && sscanf(at + sizeof hydra_signal - 1, "%d", &signal) == 1) {
        rank = cod_deaths_first(r->deaths, r->told);
        for (int i = 0; rank < 0 && i < MOST_TOLD; i++)
            rank = r->pids[i] == pid ? i : rank;
    }
    if (rank < 0)
        return;
    ending->killed_rank = rank;
    snprintf(ending->killed, sizeof ending->killed, "rank %d on %s was killed by signal %d (%s)", rank, node, signal,
             strsignal(signal));
}

/** "RANK PID" of a rank that has begun. */
static void note_rank(relay *r, const char *text)
{
    int rank, pid;
    if (sscanf(text, "%d %d", &rank, &pid) != 2 || rank < 0 || rank >= MOST_TOLD)
        return;
    r->told += r->pids[rank] == 0;
    r->pids[rank] = pid;
    cod_deaths_note(r->deaths, rank, pid);
}

static void on_line(void *context, char *line)
{
    relay *r = context;
    if (line[0] == COD_DISPLAY_MARK && line[1] == 'S') {
        cod_display_news(line + 1);
    } else if (line[0] == COD_DISPLAY_MARK && line[1] == 'X') {
        r->code = (int)strtol(line + 2, NULL, 10);
    } else if (line[0] == COD_DISPLAY_MARK && line[1] == 'P') {
        note_rank(r, line + 2);
    } else if (is_rule(line) || is_about_banners(line)) {
        r->in_banner = r->in_banner != is_rule(line);
        fprintf(r->held, "%s\n", line);
    } else if (r->in_banner && !starts_with(line, "codistill: ") && !starts_with(line, "group ")) {
        fprintf(r->held, "%s\n", line);
    } else if (r->spoken && starts_with(line, "codistill: ")) {
        fprintf(r->held, "%s\n", line); /* the same from another rank: it had not heard of the end yet */
    } else {
        r->spoken = r->spoken || starts_with(line, "codistill: ");
        cod_display_line(line);
    }
}

/** Starts `args`; its standard error can be read from *from. @return the child, or -1 */
static pid_t start(char **args, int *from)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    cod_launcher_set_environment();
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        detach(parent, ends[1]);
        execvp(args[0], args);
        fprintf(stderr,
                "codistill: cannot start '%s': %s; install it (openmpi-bin), name another in COD_MPIEXEC, or set "
                "cluster.groups=1 and ranks_per_group=1\n",
                args[0], strerror(errno));
        _exit(COD_EXIT_FAILED);
    }
    close(ends[1]);
    *from = ends[0];
    return pid;
}

/** Shows the job's lines until it ends; what mpirun said of it only where nobody else has. */
static void follow(pid_t pid, int from, cod_deaths *deaths, cod_launch_ending *ending)
{
    relay r = {.code = -1, .deaths = deaths};
    int state = 0;
    child = pid;
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = pass_on, .sa_flags = SA_RESTART}, NULL);
    r.held = open_memstream(&r.held_text, &r.held_bytes);
    if (r.held != NULL)
        cod_display_read(from, on_line, &r);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    cod_display_close();
    if (r.held != NULL) {
        fclose(r.held);
        read_death(&r, r.held_text, ending);
    }
    if (WIFSIGNALED(state) && ending->killed_rank < 0)
        snprintf(ending->killed, sizeof ending->killed, "mpirun was killed by signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    if (r.spoken || asked > 1) { /* who asks twice knows why ranks are killed */
        ending->killed_rank = -1;
        ending->killed[0] = '\0';
    } else if (ending->killed_rank < 0 && r.held_text != NULL) {
        fputs(r.held_text, stderr);
    }
    free(r.held_text);
    /* A first rank that saved and ended well has not seen that another failed. */
    const bool failed = r.spoken || ending->killed_rank >= 0;
    const int code = r.code > 0 || (r.code == 0 && !failed) ? r.code
                     : WIFEXITED(state)                     ? WEXITSTATUS(state)
                                                            : COD_EXIT_FAILED;
    ending->code = code <= COD_EXIT_USAGE && !(failed && code == COD_EXIT_OK) ? code : COD_EXIT_FAILED;
}

void cod_launch(const cod_run_config *config, int ranks, int argc, char **argv, cod_launch_ending *ending)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **args = calloc((size_t)argc + COD_LAUNCHER_ARGUMENTS + 3, sizeof *args);
    pid_t pid = -1;
    int from = -1;
    cod_deaths deaths;
    *ending = (cod_launch_ending){.code = COD_EXIT_FAILED, .killed_rank = -1};
    cod_deaths_open(&deaths);
    if (length > 0 && args != NULL) {
        self[length] = '\0';
        int used =
            cod_launcher_arguments(ranks, cod_launcher_ranks_per_node(config, ranks, cod_launcher_nodes()), args);
        args[used++] = self;
        args[used++] = "train";
        for (int i = 1; i < argc; i++)
            args[used++] = argv[i];
        pid = start(args, &from);
    }
    if (pid > 0)
        follow(pid, from, &deaths, ending);
    else
        fprintf(stderr, "codistill: cannot prepare to start mpirun: %s\n", strerror(errno));
    cod_deaths_close(&deaths);
    free(args);
}
