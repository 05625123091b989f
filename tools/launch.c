#include "tools/launch.h"

#include "tools/cmd.h"
#include "tools/display.h"

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

/** What has been read of a job's standard error. */
typedef struct relay {
    FILE *held; /**< mpirun's own messages: between rules of dashes, and what it says about them */
    char *held_text;
    size_t held_bytes;
    bool in_banner, spoken; /**< a rank has said why the job fails */
    int code;               /**< that the first rank told, or -1 */
    cod_launch_ending *ending;
} relay;

static volatile sig_atomic_t child, asked;

/**
 * mpirun answers SIGTERM and SIGINT by killing its ranks, after a sleep that it also keeps after every abort; SIGUSR1 it
 * only hands on, and ranks save and end. Who asks twice does not want to wait.
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
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(COD_EXIT_FAILED);
}

void cod_launch_tell_exit_code(int code)
{
    if (cod_display_is_read())
        fprintf(stderr, "%cX%d\n", COD_DISPLAY_MARK, code);
}

static bool is_rule(const char *line)
{
    enum { SHORTEST = 60 };
    const size_t length = strspn(line, "-");
    return length >= SHORTEST && line[length] == '\0';
}

/** Whether it is one of mpirun's lines about its banners: "[host:pid] 1 more process has sent help message …". */
static bool is_about_banners(const char *line)
{
    return line[0] == '[' && (strstr(line, "sent help message") || strstr(line, "orte_base_help_aggregate") ||
                              strstr(line, "show_help.c"));
}

static bool starts_with(const char *line, const char *start)
{
    return strncmp(line, start, strlen(start)) == 0;
}

/** mpirun's word on a rank that a signal ended. */
static void read_death(const char *line, cod_launch_ending *ending)
{
    static const char phrase[] = "noticed that process rank ";
    const char *at = strstr(line, phrase);
    int rank, pid, signal;
    char node[64];
    if (at != NULL && ending->killed_rank < 0 &&
        sscanf(at + sizeof phrase - 1, "%d with PID %d on node %63s exited on signal %d", &rank, &pid, node, &signal) ==
            4) {
        ending->killed_rank = rank;
        snprintf(ending->killed, sizeof ending->killed, "rank %d on %s was killed by signal %d (%s)", rank, node,
                 signal, strsignal(signal));
    }
}

static void on_line(relay *r, char *line)
{
    char *end = NULL;
    if (line[0] == COD_DISPLAY_MARK && line[1] == 'S') {
        const long group = strtol(line + 2, &end, 10);
        cod_display_group((int)group, *end == ' ' ? end + 1 : end);
    } else if (line[0] == COD_DISPLAY_MARK && line[1] == 'X') {
        r->code = (int)strtol(line + 2, NULL, 10);
    } else if (is_rule(line) || is_about_banners(line)) {
        r->in_banner = r->in_banner != is_rule(line);
        fprintf(r->held, "%s\n", line);
    } else if (r->in_banner && !starts_with(line, "codistill: ") && !starts_with(line, "group ")) {
        read_death(line, r->ending);
        fprintf(r->held, "%s\n", line);
    } else if (r->spoken && starts_with(line, "codistill: ")) {
        fprintf(r->held, "%s\n", line); /* the same from another rank: it had not heard of the end yet */
    } else {
        r->spoken = r->spoken || starts_with(line, "codistill: ");
        cod_display_line(line);
    }
}

/** Reads lines until the last writer is gone. */
static void read_all(relay *r, int from)
{
    FILE *in = fdopen(from, "r");
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t length; in != NULL && (length = getline(&line, &capacity, in)) > 0;) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        on_line(r, line);
    }
    free(line);
    if (in != NULL)
        fclose(in);
}

/** What mpirun needs to know, unless the user has said otherwise. */
static void set_environment(void)
{
    setenv(COD_DISPLAY_VARIABLE, cod_display_shows_groups() ? "terminal" : "plain", 1);
    setenv("OMPI_MCA_mca_base_env_list", COD_DISPLAY_VARIABLE, 0); /* also for ranks on other nodes */
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);           /* ranks may be as many as there are, cores or not */
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

/** Starts `args`; its standard error can be read from *from. @return the child, or -1 */
static pid_t start(char **args, int *from)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    set_environment();
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        detach(parent, ends[1]);
        execvp(args[0], args);
        fprintf(stderr,
                "codistill: cannot start mpirun: %s; install it (openmpi-bin), or set cluster.groups=1 and "
                "ranks_per_group=1\n",
                strerror(errno));
        _exit(COD_EXIT_FAILED);
    }
    close(ends[1]);
    *from = ends[0];
    return pid;
}

/** Shows the job's lines until it ends; what mpirun said of it only where nobody else has. */
static void follow(pid_t pid, int from, cod_launch_ending *ending)
{
    relay r = {.code = -1, .ending = ending};
    int state = 0;
    child = pid;
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = pass_on, .sa_flags = SA_RESTART}, NULL);
    r.held = open_memstream(&r.held_text, &r.held_bytes);
    if (r.held != NULL)
        read_all(&r, from);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    cod_display_close();
    if (r.held != NULL)
        fclose(r.held);
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

void cod_launch(int ranks, int argc, char **argv, cod_launch_ending *ending)
{
    char self[4096], count[16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **args = calloc((size_t)argc + 8, sizeof *args);
    pid_t pid = -1;
    int from = -1;
    *ending = (cod_launch_ending){.code = COD_EXIT_FAILED, .killed_rank = -1};
    if (length > 0 && args != NULL) {
        self[length] = '\0';
        snprintf(count, sizeof count, "%d", ranks);
        char *const head[] = {"mpirun", "-n", count, self, "train"};
        int used = 0;
        for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
            args[used++] = head[i];
        for (int i = 1; i < argc; i++)
            args[used++] = argv[i];
        pid = start(args, &from);
    }
    if (pid > 0)
        follow(pid, from, ending);
    else
        fprintf(stderr, "codistill: cannot prepare to start mpirun: %s\n", strerror(errno));
    free(args);
}
