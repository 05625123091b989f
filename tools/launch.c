#include "tools/launch.h"

#include "tools/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_FILE "COD_EXIT_FILE"

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
static void detach(pid_t parent)
{
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(COD_EXIT_FAILED);
}

void cod_launch_leave_exit_code(int code)
{
    const char *path = getenv(EXIT_FILE);
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%d\n", code);
    fclose(file);
}

/** The code that the first rank left, or `otherwise`. */
static int left_exit_code(const char *path, int otherwise)
{
    int code = otherwise;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%d", &code) != 1)
            code = otherwise;
        fclose(file);
    }
    return code;
}

int cod_launch(int ranks, int argc, char **argv)
{
    char self[4096], count[16], exit_path[] = "/tmp/codistill-exit-XXXXXX";
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const int exit_file = mkstemp(exit_path);
    if (length < 0 || exit_file < 0) {
        fprintf(stderr, "codistill: cannot prepare to start mpirun: %s\n", strerror(errno));
        return COD_EXIT_FAILED;
    }
    close(exit_file);
    self[length] = '\0';
    snprintf(count, sizeof count, "%d", ranks);
    setenv(EXIT_FILE, exit_path, 1);
    /* Ranks may be as many as there are, cores or not. */
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    char **args = calloc((size_t)argc + 8, sizeof *args);
    if (args == NULL)
        return COD_EXIT_FAILED;
    int used = 0;
    char *const head[] = {"mpirun", "--quiet", "-n", count, self, "train"};
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        args[used++] = head[i];
    for (int i = 1; i < argc; i++)
        args[used++] = argv[i];
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        detach(parent);
        execvp(args[0], args);
        fprintf(stderr,
                "codistill: cannot start mpirun: %s; install it (openmpi-bin), or set cluster.groups=1 and "
                "ranks_per_group=1\n",
                strerror(errno));
        _exit(127);
    }
    child = pid;
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = pass_on, .sa_flags = SA_RESTART}, NULL);
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    free(args);
    const int code = left_exit_code(exit_path, WIFEXITED(state) ? WEXITSTATUS(state) : COD_EXIT_FAILED);
    unlink(exit_path);
    return code;
}
