#include "tools/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4, NOT_STARTED = 127 };

static volatile sig_atomic_t running[MOST]; /**< process ids; 0 = free */

void cod_child_kill_all(void)
{
    for (int i = 0; i < MOST; i++)
        if (running[i] > 0)
            kill((pid_t)running[i], SIGKILL);
}

static void change_running(pid_t from, pid_t to)
{
    for (int i = 0; i < MOST; i++)
        if (running[i] == (sig_atomic_t)from) {
            running[i] = (sig_atomic_t)to;
            return;
        }
}

/** In the child. */
static void become(const char *const args[], pid_t parent, int in, int out, int said)
{
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        execvp(args[0], (char *const *)args);
    dprintf(STDERR_FILENO, "%s\n", strerror(errno));
    _exit(NOT_STARTED);
}

cod_status cod_child_start(cod_child *child, const char *const args[], bool writes)
{
    int ends[2] = {-1, -1};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    *child = (cod_child){.name = args[0], .pipe = -1, .said = memfd_create("said", MFD_CLOEXEC)};
    const bool ready = null >= 0 && child->said >= 0 && pipe2(ends, O_CLOEXEC) == 0;
    const pid_t parent = getpid();
    child->pid = ready ? fork() : -1;
    if (child->pid == 0)
        become(args, parent, writes ? null : ends[0], writes ? ends[1] : null, child->said);
    const int reason = errno;
    child->pipe = ends[writes ? 0 : 1];
    if (ready)
        close(ends[writes ? 1 : 0]);
    if (null >= 0)
        close(null);
    if (child->pid > 0) {
        change_running(0, child->pid);
        return COD_OK;
    }
    cod_child_kill(child);
    return cod_fail(COD_ERR_IO, "cannot start %s: %s", args[0], strerror(reason));
}

/**
 * Without the name and address of the part of a program that says it, as ffmpeg has them: "[mov @ 0x5636a2c5cf00] ".
 */
static const char *plain(const char *line)
{
    const char *end = line[0] == '[' ? strstr(line, "] ") : NULL;
    return end != NULL ? end + 2 : line;
}

/** The last three lines, on one. */
static void read_words(const cod_child *child, char words[COD_CHILD_WORDS])
{
    char text[COD_CHILD_WORDS], *line, *rest = text;
    const char *last[3] = {"", "", ""};
    const off_t end = lseek(child->said, 0, SEEK_END), room = COD_CHILD_WORDS - 1, from = end > room ? end - room : 0;
    const ssize_t got = end > 0 ? pread(child->said, text, (size_t)(end - from), from) : 0;
    text[got > 0 ? got : 0] = '\0';
    while ((line = strsep(&rest, "\n")) != NULL)
        if (line[0] != '\0') {
            last[0] = last[1];
            last[1] = last[2];
            last[2] = plain(line);
        }
    snprintf(words, COD_CHILD_WORDS, "%s%s%s%s%s", last[0], last[0][0] != '\0' ? "; " : "", last[1],
             last[1][0] != '\0' ? "; " : "", last[2]);
}

/** Waits for the end, and forgets the child. @return how it ended, as waitpid() has it */
static int reap(cod_child *child, char words[COD_CHILD_WORDS])
{
    int state = 0;
    if (child->pipe >= 0)
        close(child->pipe);
    child->pipe = -1;
    while (child->pid > 0 && waitpid(child->pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (child->pid > 0)
        change_running(child->pid, 0);
    read_words(child, words);
    if (child->said >= 0)
        close(child->said);
    *child = (cod_child){0};
    return state;
}

cod_status cod_child_end(cod_child *child, char words[COD_CHILD_WORDS])
{
    const char *name = child->name;
    const int state = reap(child, words);
    if (WIFSIGNALED(state))
        return cod_fail(COD_ERR_IO, "%s was killed by signal %d (%s)", name, WTERMSIG(state),
                        strsignal(WTERMSIG(state)));
    if (WEXITSTATUS(state) == NOT_STARTED)
        return cod_fail(COD_ERR_UNSUPPORTED, "cannot start %s: %s", name, words);
    if (WEXITSTATUS(state) != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", name, words[0] != '\0' ? words : "failed without a message");
    return COD_OK;
}

void cod_child_kill(cod_child *child)
{
    char words[COD_CHILD_WORDS];
    if (child->name == NULL)
        return;
    if (child->pid > 0)
        kill(child->pid, SIGKILL);
    reap(child, words);
}
